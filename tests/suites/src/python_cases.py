"""Runs a module of Python's own tests, and says as TAP what came of each case: module, and a directory for logs."""

import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

module, logs = sys.argv[1:]
cases = os.path.join(logs, "cases.xml")
command = [sys.executable, "-m", "test", "-u", "cpu,subprocess,largefile", "--junit-xml", cases, module]
with open(os.path.join(logs, "said"), "wb") as said:
    status = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said).returncode
if os.path.exists(cases):
    for case in ElementTree.parse(cases).iter("testcase"):
        came = [part.tag for part in case if part.tag in ("failure", "error", "skipped")]
        # Objects in names of parameters have addresses, which differ. `#` begins a directive of TAP.
        name = case.get("name").split(" at 0x")[0].replace("#", "")
        print("not ok" if came and came[0] != "skipped" else "ok", name, "# SKIP" if came == ["skipped"] else "")
print("ok" if status == 0 else "not ok", f"the module as a whole: status {status}")
