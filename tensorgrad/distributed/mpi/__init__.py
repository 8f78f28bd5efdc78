"""MPI: the world of all processes of a job, how they join it, and the operations it begins."""
