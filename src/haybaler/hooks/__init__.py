"""The hooks that a Haystack Agent runs; the only modules that read or set its State."""
