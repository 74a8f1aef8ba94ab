//go:build cluster

package image

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tinylet/tinylet/test/harness/board"
	"github.com/tinylet/tinylet/test/harness/controlplane"
)

const (
	// patience is how long a check waits for what a fast board does in a second.
	patience = 4 * time.Minute
	// diskSize is the size of the card, in bytes. The image is smaller.
	diskSize = 3 << 30
	// bootOffset is where the boot partition begins on the disk, in bytes.
	bootOffset = 1 << 20
	name       = "edge-image"
	// cmdline is what the boot loader of a board passes to the kernel, but the console.
	cmdline = "root=PARTLABEL=root-a rootfstype=erofs ro rootwait gpt"
)

// lab is a control plane with a board that has the image.
type lab struct {
	*testing.T            // of the present step
	root       *testing.T // which the board ends with
	c          *controlplane.Cluster
	im         *board.Image
	net        *board.Network
	key        string // file of the SSH key
	public     string
	vm         *board.VM
	began      time.Time // when the board was powered on
}

// lines is a test's log as a writer of lines.
type lines struct{ t *testing.T }

func (l lines) Write(p []byte) (int, error) {
	l.t.Log(strings.TrimSuffix(string(p), "\n"))
	return len(p), nil
}

// newLab starts a control plane and prepares a card with the image.
func newLab(t *testing.T) *lab {
	t.Helper()
	dir := os.Getenv("IMAGE")
	if dir == "" {
		t.Fatal("IMAGE is not set: want the directory of an image, such as .cache/buildroot/qemu_aarch64_virt/images")
	}
	arch, kernel := board.ARM64, filepath.Join(dir, "Image")
	if _, err := os.Stat(kernel); err != nil {
		arch, kernel = board.ARMv7, filepath.Join(dir, "zImage")
	}
	l := &lab{T: t, root: t, c: controlplane.Start(t, controlplane.Options{}), key: filepath.Join(t.TempDir(), "key")}
	l.net = l.c.BoardNet(t, name)
	card := filepath.Join(t.TempDir(), "disk.img")
	l.command(nil, "cp", "--sparse=always", filepath.Join(dir, "disk.img"), card)
	if err := os.Truncate(card, diskSize); err != nil {
		t.Fatal(err)
	}
	l.im = board.DiskImage(arch, kernel, card, cmdline)
	l.command(nil, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "owner", "-f", l.key)
	public, err := os.ReadFile(l.key + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	l.public = strings.TrimSpace(string(public))
	return l
}

// command runs a program of this machine.
func (l *lab) command(stdin io.Reader, argv ...string) string {
	l.Helper()
	cmd := exec.CommandContext(l.Context(), argv[0], argv[1:]...)
	cmd.Stdin = stdin
	out, err := cmd.CombinedOutput()
	if err != nil {
		l.Fatalf("%s: %v\n%s", strings.Join(argv, " "), err, out)
	}
	return string(out)
}

// provisioning is a file that sets the board up as a node of the cluster.
func (l *lab) provisioning() string {
	return fmt.Sprintf(`hostname: %s
timeZone: Europe/Berlin
network:
  addresses: [%s]
  gateway: %s
ssh:
  authorizedKeys: [%q]
join:
  server: %s
  token: %s
  caCertHashes: [%s]
`, name, l.net.Address, l.net.Gateway, l.public, l.c.Server(), l.c.Token(l.T), l.c.CAHash(l.T))
}

// putProvisioning writes the file to the boot partition of the card.
func (l *lab) putProvisioning(text string) {
	l.Helper()
	l.command(strings.NewReader(text), "mcopy", "-o", "-i", fmt.Sprintf("%s@@%d", l.im.Disk, bootOffset), "-", "::tinylet.yaml")
}

// step runs a part of the test, and prints the console of the board if it failed.
func (l *lab) step(name string, run func()) bool {
	return l.root.Run(name, func(t *testing.T) {
		l.T = t
		defer func() {
			if t.Failed() && l.vm != nil {
				t.Logf("console:\n%s", l.vm.ConsoleLog())
			}
			l.T = l.root
		}()
		run()
	})
}

// newDisk makes a layer over the card, which the boards of one test share.
func (l *lab) newDisk() string {
	l.Helper()
	disk := filepath.Join(l.root.TempDir(), "layer.qcow2")
	if err := board.NewDisk(l.Context(), l.im, disk); err != nil {
		l.Fatal(err)
	}
	return disk
}

// power turns the board on.
func (l *lab) power(disk string) {
	l.Helper()
	l.began = time.Now()
	vm, err := board.PowerOn(l.Context(), l.im, board.VMOptions{Disk: disk, Network: l.net})
	if err != nil {
		l.Fatal(err)
	}
	l.vm = vm
	l.root.Cleanup(func() {
		if err := vm.Close(); err != nil {
			l.root.Error(err)
		}
	})
}

// ssh runs a command of the board's shell.
func (l *lab) ssh(ctx context.Context, stdin io.Reader, script string) (string, error) {
	cmd := l.c.Beside(l.T, ctx, "ssh", "-i", l.key, "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no",
		"-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR", "-o", "ConnectTimeout=10",
		"root@"+l.net.Address.Addr().String(), script)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("%s: %w: %s", script, err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}

// sh runs a command of the board's shell that must succeed.
func (l *lab) sh(script string) string {
	l.Helper()
	ctx, cancel := context.WithTimeout(l.Context(), patience)
	defer cancel()
	out, err := l.ssh(ctx, nil, script)
	if err != nil {
		l.Fatalf("%v\n%s", err, out)
	}
	return out
}

// until waits until check returns "".
func (l *lab) until(what string, check func() string) {
	l.Helper()
	deadline := time.Now().Add(patience)
	for {
		missing := check()
		if missing == "" {
			return
		}
		if time.Now().After(deadline) {
			l.Fatalf("%s: %s", what, missing)
		}
		select {
		case <-l.Context().Done():
			l.Fatalf("%s: %v", what, context.Cause(l.Context()))
		case <-l.vm.Ended():
			l.Fatalf("%s: the board ended: %s", what, l.vm.ConsoleLog())
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// nodeReady waits until the control plane shows that a node is Ready.
func (l *lab) nodeReady(node string) {
	l.Helper()
	l.until("the node is Ready", func() string {
		out, err := l.c.Kubectl(l.Context(), "get", "node", node, "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`)
		if err != nil || out != "True" {
			return fmt.Sprintf("Ready is %q, %v", out, err)
		}
		return ""
	})
}

// goarch is the board's architecture as images name it.
func (l *lab) goarch() string {
	return map[board.Arch]string{board.ARM64: "arm64", board.ARMv7: "arm"}[l.im.Arch]
}

// up waits until the board has a shell.
func (l *lab) up() {
	l.Helper()
	l.until("the board answers", func() string {
		ctx, cancel := l.timeout()
		defer cancel()
		if _, err := l.ssh(ctx, nil, "true"); err != nil {
			return err.Error()
		}
		return ""
	})
}

// timeout bounds one command of the board's shell.
func (l *lab) timeout() (context.Context, context.CancelFunc) {
	return context.WithTimeout(l.Context(), 20*time.Second)
}
