package board

import (
	"context"
	"fmt"
	"os"
	"time"
)

// firstBootTime bounds the first start of a new image.
const firstBootTime = 5 * time.Minute

// firstBoot starts a new image once on the disk raw and makes the image's disk
// of the outcome, so that no later boot imports the container images again.
func firstBoot(ctx context.Context, im *Image, raw, sandbox string, say *progress) error {
	ctx, cancel := context.WithTimeoutCause(ctx, firstBootTime, fmt.Errorf("first boot takes more than %v", firstBootTime))
	defer cancel()
	say.printf("booting it once to import the container images")
	layer := raw + ".first"
	if err := newLayer(ctx, raw, "raw", layer); err != nil {
		return err
	}
	vm, err := Boot(ctx, im, VMOptions{Disk: layer})
	if err != nil {
		return err
	}
	defer vm.Close()
	if err := settle(ctx, vm, sandbox); err != nil {
		return fmt.Errorf("first boot: %w\nconsole: %s", err, tail(vm.ConsoleLog(), 3000))
	}
	if _, err := run(ctx, "", nil, "qemu-img", "convert", "-q", "-O", "qcow2", layer, im.Disk); err != nil {
		return fmt.Errorf("keep the first boot: %w", err)
	}
	return os.Remove(layer)
}

// settle waits for the images, stops the agent, which is not there yet, and
// powers the board off without a trace in its logs.
func settle(ctx context.Context, vm *VM, sandbox string) error {
	if err := vm.WaitBooted(ctx); err != nil {
		return err
	}
	for _, image := range []string{sandbox, BusyboxImage} {
		if _, err := vm.Shell(ctx, "ctr -n k8s.io images ls -q | grep -Fqx "+image+" || { tail -n 30 /var/log/*.log; exit 1; }"); err != nil {
			return fmt.Errorf("container image %s was not imported: %w", image, err)
		}
	}
	const clean = `if [ -d /run/systemd/system ]; then systemctl stop tinylet containerd
else /etc/init.d/S50tinylet stop; /etc/init.d/S40containerd stop; fi
rm -f /var/log/*.log`
	if _, err := vm.Run(ctx, "sh", "-c", clean); err != nil {
		return err
	}
	return vm.Shutdown(ctx)
}
