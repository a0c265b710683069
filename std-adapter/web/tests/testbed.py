"""A USB serial port for a browser on a computer without one: sysfs, udev and /dev of its own, by umockdev.

Prints the folder that stands for the root as its first line. Then it takes a line for each command, and answers each with a line:
`tty PATH` makes /dev/ttyACM0 this terminal, `remove` and `add` unplug the device and plug it in again.
"""

import os
import sys

import gi

gi.require_version("UMockdev", "1.0")
from gi.repository import UMockdev  # noqa: E402

USB = "/devices/pci0000:00/0000:00:14.0/usb1/1-1"
TTY = USB + "/1-1:1.0/tty/ttyACM0"
DEVICE = f"""P: {USB}
E: DEVTYPE=usb_device
E: DRIVER=usb
E: SUBSYSTEM=usb
E: ID_VENDOR_ID={sys.argv[1]}
E: ID_MODEL_ID={sys.argv[2]}
A: idVendor={sys.argv[1]}\\n
A: idProduct={sys.argv[2]}\\n
A: serial={sys.argv[3]}\\n

P: {USB}/1-1:1.0
E: DEVTYPE=usb_interface
E: DRIVER=cdc_acm
E: SUBSYSTEM=usb

P: {TTY}
N: ttyACM0
E: DEVNAME=/dev/ttyACM0
E: SUBSYSTEM=tty
E: MAJOR=4
E: MINOR=64
E: ID_BUS=usb
E: ID_VENDOR_ID={sys.argv[1]}
E: ID_MODEL_ID={sys.argv[2]}
E: ID_MODEL_ENC=rigline\\x20rig
E: ID_SERIAL_SHORT={sys.argv[3]}
A: dev=4:64\\n
"""


def main() -> None:
    testbed = UMockdev.Testbed.new()
    root = testbed.get_root_dir()
    testbed.add_from_string(DEVICE)
    node = root + "/dev/ttyACM0"
    print(root, flush=True)
    for line in sys.stdin:
        verb, _, path = line.strip().partition(" ")
        if verb == "tty":
            if os.path.lexists(node):
                os.unlink(node)
            os.symlink(path, node)
        elif verb in ("remove", "add"):
            testbed.uevent("/sys" + TTY, verb)
        else:
            print(f"unknown command {verb}", flush=True)
            continue
        print("done", flush=True)


main()
