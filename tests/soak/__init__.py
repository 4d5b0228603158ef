"""
Many users of real stores for some minutes: `python -m tests.soak --minutes 5`. Not a part of the test suite.

At the end everything that was kept has to be whole, nobody may have seen anything of somebody else, and memory,
connections, files, tasks and threads have to be where they were.
"""
