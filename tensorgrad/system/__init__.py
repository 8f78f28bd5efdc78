"""Services of Python and the operating system: threads, forks, processes, limits, folders, lazy modules."""
