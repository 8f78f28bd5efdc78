"""What Python and the system give: threads, forks, processes, limits, folders, lazy modules."""
