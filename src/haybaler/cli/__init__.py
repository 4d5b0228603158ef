"""The command line, `haybaler`; needs the extra `haybaler[cli]`."""
