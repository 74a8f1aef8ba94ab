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
	for i := range cuts {
		from, to := "old", "new"
		if i%2 == 1 {
			from, to = to, from
		}
		if n = u.cut(n, from, to, time.Duration(random.Int64N(int64(u.takes)))); t.Failed() {
			return
		}
	}
}

// upgrades is a board that is upgraded while its power is cut.
type upgrades struct {
	image *board.Image
	disk  string
	sums  map[string]string // the version of a binary, by its SHA-256
	takes time.Duration     // an installation
}

// cut cuts the power at a moment of an upgrade. The board then has one of the two binaries,
// on trial if it is the new one, runs its pod, and can be upgraded. The node returned is the
// board after that.
func (u *upgrades) cut(n node, from, to string, moment time.Duration) node {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = n.vm.Run(n.ctx, "dpkg", "--force-confold", "-i", "/root/"+to+".deb") // ends with the board
	}()
	time.Sleep(moment)
	n.vm.Kill()
	<-done
	n = bootImage(n.T, u.image, board.VMOptions{MemoryMB: 512, Disk: u.disk, DiskCache: "none"}, systemdLog)
	has := u.sums[n.sh("sha256sum < /usr/bin/tinylet | cut -c 1-64")]
	state := n.sh("dpkg -s tinylet | grep -E '^(Status|Version)' | xargs")
	n.Logf("cut %.1f s after the begin of an upgrade from %s to %s: the binary is %q, %s", moment.Seconds(), from, to, has, state)
	switch has {
	case from:
	case to:
		if n.sh("ls /var/lib/tinylet/upgrade") != "trial" {
			n.Error("the new binary is not on trial")
		}
	default:
		n.Error("the binary is neither of the two")
	}
	n.eventually(patience, "the server is ready after the power cut", isReady("server"))
	n.sh("dpkg --configure -a 2>&1")
	n.dpkg("-i /root/" + to + ".deb")
	n.eventually(patience, "the server is ready after the upgrade", isReady("server"))
	if got := u.sums[n.sh("sha256sum < /usr/bin/tinylet | cut -c 1-64")]; got != to {
		n.Errorf("after the upgrade the binary is %q", got)
	}
	n.eventually(patience, "the binary is confirmed", confirmed(n))
	n.sh("sync")
	return n
}
