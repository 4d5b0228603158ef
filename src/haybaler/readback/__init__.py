"""What the tools that read stored results back do: arguments, pages, search, and a sentence for every failure."""
