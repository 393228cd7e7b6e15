# All stages of a boot, in the order in which a distribution's units run them, in one interpreter: most of the time of a
# stage is the start of Python and its imports, and there are four.
import traceback

from cloudinit.cmd.main import main

for stage in (["init", "--local"], ["init"], ["modules", "--mode=config"], ["modules", "--mode=final"]):
    try:
        main(["cloud-init", *stage])
    except Exception:
        traceback.print_exc()
