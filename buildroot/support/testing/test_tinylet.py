import json
import os
import shutil
import time

import infra.basetest

# A link to this file in Buildroot's support/testing/tests/package makes it a
# test of Buildroot's: support/testing/run-tests -d DOWNLOADS -o OUTPUT
# tests.package.test_tinylet
TREE = os.path.realpath(os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", ".."))

POD = """
apiVersion: v1
kind: Pod
metadata: {name: pause}
spec:
  containers:
  - {name: pause, image: "localhost/pause:1", imagePullPolicy: Never}
"""


class TestTinylet(infra.basetest.BRTest):
    br2_external = [TREE]
    defconfig = "tinylet_qemu_aarch64_virt_defconfig"

    # The image has no login. The emulator of the test needs one, and the
    # default host name.
    with open(os.path.join(TREE, "configs", defconfig)) as f:
        config = "".join([line for line in f if not line.startswith((
            "# BR2_TARGET_ENABLE_ROOT_LOGIN", "# BR2_TARGET_GENERIC_GETTY",
            "BR2_TARGET_GENERIC_HOSTNAME",
            "BR2_PACKAGE_BUSYBOX_CONFIG_FRAGMENT_FILES"))])

    def test_run(self):
        images = os.path.join(self.builddir, "images")
        # The disk is larger than the image, as a card is.
        disk = os.path.join(images, "card.img")
        shutil.copyfile(os.path.join(images, "disk.img"), disk)
        os.truncate(disk, 2 << 30)
        self.emulator.boot(
            arch="aarch64",
            kernel=os.path.join(images, "Image"),
            kernel_cmdline=["root=PARTLABEL=root-a", "rootfstype=erofs", "ro", "rootwait", "gpt",
                            "console=ttyAMA0", "psi=1"],
            options=["-M", "virt", "-cpu", "cortex-a72", "-smp", "2", "-m", "512",
                     "-drive", f"file={disk},if=none,format=raw,id=root",
                     "-device", "virtio-blk-device,drive=root",
                     "-netdev", "user,id=net", "-device", "virtio-net-device,netdev=net"])
        self.emulator.login()

        # Nothing keeps a node from working.
        self.assertRunOk("tinylet check", timeout=60)

        manifest = "/etc/kubernetes/manifests/pause.yaml"
        lines = "\\n".join(POD.strip().split("\n"))
        self.assertRunOk(f"printf '{lines}\\n' > {manifest}.new && mv {manifest}.new {manifest}")

        for _ in range(60):
            output, exit_code = self.emulator.run("tinylet ps -o json", timeout=30)
            pods = json.loads("".join(output))["pods"] if exit_code == 0 else []
            if [pod["status"] for pod in pods] == ["Running"]:
                return
            time.sleep(2)
        self.fail(f"the pod does not run: {pods}")
