//go:build board

package standalone

import (
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tinylet/tinylet/test/harness/board"
)

// TestPackagePowerCuts cuts the power of a Debian board CUTS times at random moments of an
// upgrade of the package, to and from the newer version. SEED repeats a run.
func TestPackagePowerCuts(t *testing.T) {
	dir := os.Getenv("BOARD_DEBS")
	if dir == "" {
		t.Skip("it takes a board of its own: make test-deb runs it, with BOARD_DEBS set")
	}
	cuts, seed := board.Number(t, "CUTS", 5), uint64(board.Number(t, "SEED", time.Now().UnixNano()%1_000_000))
	t.Logf("%d cuts, SEED=%d", cuts, seed)
	random := rand.New(rand.NewPCG(seed, 0))
	image, disk := packageBoard(t)
	u := upgrades{image: image, disk: disk, sums: map[string]string{}}
	for _, version := range []string{"old", "new"} {
		program, err := os.ReadFile(filepath.Join(dir, version, "tinylet-"+string(arch())))
		if err != nil {
			t.Fatal(err)
		}
		u.sums[fmt.Sprintf("%x", sha256.Sum256(program))] = version
	}
	n := bootImage(t, image, board.VMOptions{
		MemoryMB: 512, Disk: disk, DiskCache: "none", Files: append(packageFiles(t, dir, "old"), packageFiles(t, dir, "new")...),
	}, systemdLog)
	n.dpkg("-i /root/new.deb") // takes as long as an upgrade, which is measured with it
	start := time.Now()
	n.dpkg("-i /root/old.deb")
	u.takes = time.Since(start)
	n.put("server.yaml", strings.ReplaceAll(stockPods, "configMap: {name: settings}", "emptyDir: {}"))
	n.eventually(patience, "the server is ready", isReady("server"))
	n.eventually(patience, "the binary is confirmed", confirmed(n))
	n.sh("sync")
	u.confirmed = "old"
	n = u.cutUnpacked(n, "new")
	u.settle(n, "old")
	// A power cut at the begin of an upgrade leaves this state. Random ones rarely do.
	n.sh("sed -i '/^Package: tinylet$/,/^$/s/^Status: .*/Status: install reinstreq half-configured\\nConfig-Version: 0.1.0~old/' /var/lib/dpkg/status")
	u.settle(n, "new")
	u.settle(n, "old")
	for i := range cuts {
		to := []string{"new", "old"}[i%2]
		n = u.cut(n, to, time.Duration(random.Int64N(int64(u.takes))))
		if (i+1)%settleEvery == 0 || i+1 == cuts {
			u.settle(n, to)
		}
		if t.Failed() {
			return
		}
	}
}

// settleEvery is how many upgrades are interrupted before one is completed.
const settleEvery = 5

// upgrades is a board that is upgraded while its power is cut.
type upgrades struct {
	image     *board.Image
	disk      string
	sums      map[string]string // the version of a binary, by its SHA-256
	takes     time.Duration     // an installation
	confirmed string            // the version that was confirmed last
}

// version is that of a binary on the board, "" if it is none of the two.
func (u *upgrades) version(n node, path string) string {
	n.Helper()
	return u.sums[n.sh("sha256sum < %s | cut -c 1-64", path)]
}

// cut cuts the power at a moment of an upgrade, and returns the board after it.
func (u *upgrades) cut(n node, to string, moment time.Duration) node {
	present := u.version(n, "/usr/bin/tinylet") // may be confirmed until the upgrade begins
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = n.vm.Run(n.ctx, "dpkg", "--force-confold", "-i", "/root/"+to+".deb") // ends with the board
	}()
	time.Sleep(moment)
	n.vm.Kill()
	<-done
	n.Logf("the power was cut %.1f s after the begin of an upgrade to %s", moment.Seconds(), to)
	return u.boot(n, present)
}

// cutUnpacked cuts the power when the package is unpacked and not configured, and returns the
// board after it.
func (u *upgrades) cutUnpacked(n node, to string) node {
	present := u.version(n, "/usr/bin/tinylet")
	n.dpkg("--unpack /root/" + to + ".deb")
	n.sh("sync")
	n.vm.Kill()
	n = u.boot(n, present)
	if has := u.version(n, "/usr/bin/tinylet"); has != to {
		n.Errorf("the binary of the unpacked package is %q, want %q", has, to)
	}
	return n
}

// boot boots the board after a power cut: it has one of the two binaries, on trial if it is
// not the one that was confirmed, and runs its pod. present is the binary before the upgrade.
func (u *upgrades) boot(n node, present string) node {
	n = bootImage(n.T, u.image, board.VMOptions{MemoryMB: 512, Disk: u.disk, DiskCache: "none"}, systemdLog)
	has := u.version(n, "/usr/bin/tinylet")
	n.Logf("the binary is %q, %s", has, n.sh("dpkg -s tinylet | grep -E '^(Status|Version)' | xargs"))
	if has == "" {
		n.Error("the binary is neither of the two")
	}
	trial := n.sh("ls /var/lib/tinylet/upgrade")
	if trial == "" && has == present {
		u.confirmed = present
	}
	if has != u.confirmed {
		if trial != "trial" {
			n.Errorf("the binary is not on trial: %q", trial)
		}
		if former := u.version(n, "/usr/libexec/tinylet/former"); former != u.confirmed && former != present {
			n.Errorf("the former binary is %q; %q was confirmed, %q was present", former, u.confirmed, present)
		}
	}
	n.eventually(patience, "the server is ready after the power cut", isReady("server"))
	return n
}

// settle completes the upgrade. dpkg configures what it has unpacked, but not a package of which
// the power cut interrupted the unpacking: that must be installed again ("reinst-required").
func (u *upgrades) settle(n node, to string) {
	n.sh("dpkg --configure -a 2>&1 || dpkg-query -W -f '${db:Status-Eflag}' tinylet | grep -x reinstreq")
	n.dpkg("-i /root/" + to + ".deb")
	n.eventually(patience, "the server is ready after the upgrade", isReady("server"))
	if got := u.version(n, "/usr/bin/tinylet"); got != to {
		n.Errorf("after the upgrade the binary is %q", got)
	}
	n.eventually(patience, "the binary is confirmed", confirmed(n))
	u.confirmed = to
	n.sh("sync")
}
