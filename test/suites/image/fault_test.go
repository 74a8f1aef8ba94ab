//go:build cluster

package image

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tinylet/tinylet/test/harness/board"
)

// dataOffset is where the data partition begins on the disk, in bytes: behind the boot
// partition and two roots (buildroot/board/image/genimage.cfg).
const dataOffset = bootOffset + (128+96+96)<<20

// console waits until the board's console has all texts.
func (l *lab) console(texts ...string) {
	l.Helper()
	for _, text := range texts {
		l.until("the console", func() string {
			if !strings.Contains(l.vm.ConsoleLog(), text) {
				return fmt.Sprintf("it has no %q", text)
			}
			return ""
		})
	}
}

// off ends the board, if there is one, and makes the card of the next one from its disk.
func (l *lab) off(disk string) {
	l.Helper()
	if l.vm != nil {
		l.vm.Kill()
	}
	card := filepath.Join(l.root.TempDir(), "card.img")
	l.command(nil, "qemu-img", "convert", "-f", "qcow2", "-O", "raw", disk, card)
	l.im = board.DiskImage(l.im.Arch, l.im.Kernel, card, cmdline)
}

// provisioningFile returns the file on the boot partition of the card.
func (l *lab) provisioningFile() string {
	l.Helper()
	return l.command(nil, "mcopy", "-n", "-i", fmt.Sprintf("%s@@%d", l.im.Disk, bootOffset), "::tinylet.yaml", "-")
}

// TestProvisioningFile boots with files that are wrong in each way. The board says what is
// wrong, changes nothing, and starts; the corrected file is applied at the next boot.
func TestProvisioningFile(t *testing.T) {
	l := newLab(t)
	good := l.provisioning()
	for _, row := range []struct {
		name, text string
		want       []string // on the console
	}{
		{"every field is wrong", `hostname: A_B
timeZone: Mars
network: {interface: "a b", addresses: [x], gateway: y, nameservers: [z], wifi: {ssid: "", passphrase: short, country: xx}}
ssh: {authorizedKeys: [no]}
join: {server: "http://x", token: abc, caCertHashes: [x]}
kubeconfig: x
`, []string{"hostname: ", "network.addresses[0]: ", "network.gateway: ", "network.wifi.passphrase: ", "ssh.authorizedKeys[0]: ", "join.server: ", "join.token: ", "join.caCertHashes[0]: ", "kubeconfig: "}},
		{"truncated", good[:len(good)/2], []string{"provisioning file: ", "FAIL"}},
		{"large", good + strings.Repeat("#", 1<<20), []string{"has more than 65536 bytes"}},
		{"binary", "\x00\x01\xff", []string{"provisioning file: ", "FAIL"}},
		{"an unknown zone", "timeZone: Europe/Atlantis\n", []string{"Europe/Atlantis"}},
	} {
		l.step(row.name, func() {
			l.putProvisioning(row.text)
			disk := l.newDisk()
			l.power(disk)
			l.console(append(row.want, "Starting tinylet: OK")...)
			l.off(disk)
			if got := l.provisioningFile(); got != row.text {
				l.Errorf("the file was changed: %.200q", got)
			}
		})
	}
	l.step("corrected, with a byte order mark and CRLF", func() {
		l.putProvisioning("\ufeff" + strings.ReplaceAll(good, "\n", "\r\n"))
		disk := l.newDisk()
		l.power(disk)
		l.up()
		if got := strings.TrimSpace(l.sh("hostname; cat /run/tinylet/problems/* 2> /dev/null; true")); got != name {
			l.Errorf("host name and problems are %q", got)
		}
		l.off(disk)
		if got := l.provisioningFile(); !strings.HasPrefix(got, "# tinylet has applied") || strings.Contains(got, "join") {
			l.Errorf("the file is %.200q", got)
		}
	})
}

// TestDataPartition boots with a data partition that is missing, damaged or full.
func TestDataPartition(t *testing.T) {
	l := newLab(t)
	text := l.provisioning()
	l.putProvisioning(text)
	whole := l.im
	l.step("missing", func() {
		l.off(l.newDiskOf(whole))
		l.command(nil, "sfdisk", "--quiet", "--part-label", l.im.Disk, "4", "other")
		l.unprovisioned(text, "the root disk has no partition named data")
	})
	l.step("destroyed", func() {
		l.off(l.newDiskOf(whole))
		l.overwrite(dataOffset, 64<<20)
		l.unprovisioned(text, "the partition data cannot be mounted")
	})
	l.im = whole
	disk := l.newDisk()
	l.step("superblock lost", func() {
		l.power(disk)
		l.joined()
		l.sh("sync")
		l.off(disk)
		l.overwrite(dataOffset, 8<<10) // and the group descriptors
		disk = l.newDisk()
		l.power(disk)
		l.joined()
		if out := l.sh("tinylet status"); !strings.Contains(out, "was damaged and repaired") {
			l.Errorf("tinylet status does not report the repair:\n%s", out)
		}
	})
	l.step("full", func() {
		l.sh("dd if=/dev/zero of=/data/ballast bs=1M 2> /dev/null; sync; poweroff")
		select {
		case <-l.vm.Ended():
		case <-time.After(patience):
			l.Fatal("the board does not power off")
		}
		l.power(disk)
		l.up()
		l.until("the agent answers", func() string {
			ctx, cancel := l.timeout()
			defer cancel()
			out, err := l.ssh(ctx, nil, "df -h /data; tinylet status; true")
			if err != nil || !strings.Contains(out, "VERSION") {
				return fmt.Sprintf("%v: %s", err, out)
			}
			l.Log(out)
			return ""
		})
		l.sh("rm /data/ballast")
		l.joined()
	})
}

// newDiskOf makes a layer over another card.
func (l *lab) newDiskOf(im *board.Image) string {
	l.Helper()
	l.im = im
	return l.newDisk()
}

// overwrite writes random bytes to the card.
func (l *lab) overwrite(offset, size int64) {
	l.Helper()
	f, err := os.OpenFile(l.im.Disk, os.O_WRONLY, 0)
	if err != nil {
		l.Fatal(err)
	}
	defer f.Close()
	garbage := make([]byte, size)
	random := rand.NewChaCha8([32]byte{})
	_, _ = random.Read(garbage) // never fails
	if _, err := f.WriteAt(garbage, offset); err != nil {
		l.Fatal(err)
	}
}

// unprovisioned boots a board without a data partition: it says so, starts, and does not
// consume the provisioning file, whose content it could not keep.
func (l *lab) unprovisioned(text, problem string) {
	l.Helper()
	disk := l.newDisk()
	l.power(disk)
	l.console(problem, "Starting tinylet: OK")
	l.off(disk)
	if got := l.provisioningFile(); got != text {
		l.Errorf("the provisioning file is %.200q", got)
	}
}

// joined waits until the board answers and its node is Ready by what the board sends now.
func (l *lab) joined() {
	l.Helper()
	l.up()
	l.until("the node joins", func() string {
		ctx, cancel := l.timeout()
		defer cancel()
		out, err := l.ssh(ctx, nil, "tinylet status")
		if err != nil || !strings.Contains(out, "Ready True") {
			return fmt.Sprintf("%v: %s", err, out)
		}
		return ""
	})
}

// TestFirstBootPowerCuts cuts the power at random moments of the first boot, CUTS times,
// each time of a new card: the next boot continues.
func TestFirstBootPowerCuts(t *testing.T) {
	cuts := int(board.Number(t, "CUTS", 10))
	seed := uint64(board.Number(t, "SEED", time.Now().UnixNano()%1_000_000))
	random := rand.New(rand.NewPCG(seed, 0))
	l := newLab(t)
	l.putProvisioning(l.provisioning())
	for n := 1; n <= cuts; n++ {
		wait := time.Duration(random.Int64N(int64(12 * time.Second)))
		if !l.step(fmt.Sprint(n), func() {
			disk := l.newDisk()
			l.power(disk)
			select {
			case <-time.After(wait):
			case <-l.vm.Ended():
				l.Fatalf("the board ended:\n%s", l.vm.ConsoleLog())
			}
			l.vm.Kill()
			reached := lastLine(l.vm.ConsoleLog())
			l.power(disk)
			l.joined()
			got := l.sh("hostname; cat /run/tinylet/problems/* 2> /dev/null; [ $(df -k /data | awk 'END { print $2 }') -gt 2000000 ] && head -c 21 /boot/tinylet.yaml; ls /etc/kubernetes/join.json 2> /dev/null; true")
			if want := name + "\n# tinylet has applied"; strings.TrimSpace(got) != want {
				l.Errorf("the board has %q, want %q", got, want)
			}
			l.Logf("cut %.1f s after power on, at %q: joined %.1f s after the next one", wait.Seconds(), reached, time.Since(l.began).Seconds())
			l.vm.Kill()
			_ = os.Remove(disk)
		}) {
			t.Logf("seed %d", seed)
			return
		}
	}
	t.Logf("%d power cuts, seed %d", cuts, seed)
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.TrimSpace(lines[len(lines)-1])
}

// TestIdle counts the bytes that an idle board writes to its disk in IDLE_MINUTES.
func TestIdle(t *testing.T) {
	minutes := board.Number(t, "IDLE_MINUTES", 30)
	l := newLab(t)
	l.putProvisioning(l.provisioning())
	l.power(l.newDisk())
	l.joined()
	time.Sleep(2 * time.Minute) // what the boot has written reaches the disk
	const sectors = "awk '$3 == \"vda\" { print $10 }' /proc/diskstats"
	l.sh("sync")
	before := l.sh(sectors)
	time.Sleep(time.Duration(minutes) * time.Minute)
	after := l.sh(sectors)
	if before != after {
		l.Errorf("sectors written before and after %d minutes: %s and %s", minutes, strings.TrimSpace(before), strings.TrimSpace(after))
	}
	l.Logf("%d minutes: %s sectors before, %s after", minutes, strings.TrimSpace(before), strings.TrimSpace(after))
}
