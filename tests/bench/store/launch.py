"""Runs a command from a small process, since a child's peak memory begins with that of the process that starts it.

Arguments: the file for the result (seconds, seconds of processor, peak in KiB, exit code), then the command.
"""

import os
import sys
import time

begin = time.perf_counter()
pid = os.posix_spawnp(sys.argv[2], sys.argv[2:], os.environ)
_, status, usage = os.wait4(pid, 0)
seconds = time.perf_counter() - begin
with open(sys.argv[1], "w") as result:
    print(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss, os.waitstatus_to_exitcode(status), file=result)
