"""How long threads spin, yield, back off and sleep, in nanoseconds.

Waking a sleeping thread takes the system tens of microseconds, as long as many kernels run. So threads spin first; but
on a processor that others want, a spinning thread is in the way. (thread_pool.py, spin.py)
"""

SPIN = 200_000  # a worker without work, and a thread that waits for one, before it sleeps
SPIN_OF_MANY = 5 * SPIN  # the same with many threads on as many processors: waking all of them takes longer
RECENT = 1_000_000  # since the last kernel: waking threads is worthwhile, as more work is likely to follow
GIL_RELEASE = 4_000  # until the thread that published a call in Python has released the GIL
POLL = 50_000  # sleep between two checks, after spinning, and of a thread whose processor was taken

YIELD_INTERVAL = 4_000  # spinning between two yields of the processor, where another thread wants it
PREEMPTED = 20_000  # between two reads of the clock: meanwhile another thread ran here
RARELY_PREEMPTED = 32  # times as long between two preemptions as one takes: the other has a small share only
MIN_BACKOFF, MAX_BACKOFF = 20_000_000, 640_000_000  # for which an often preempted thread yields; doubled each time
MIN_MIGRATION, MAX_MIGRATION = 10_000_000, 1_000_000_000  # between two moves to another processor; doubled, too

READS_PER_CLOCK, PAUSES_PER_READ = 48, 2  # of a mailbox: reads before the clock is read, pauses before a read
READ = 80  # that a read with its pauses takes, where there is no clock to measure it
PROBE = 2_000_000  # that one range of the self-test's kernel waits for the other
