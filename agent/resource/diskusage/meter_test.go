package diskusage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/tinylet/tinylet/agent/metrics"
)

// board is a Meter with the test's mount table and file systems, and real
// directories.
type board struct {
	*Meter
	root string
	pods []Pod
	logs bytes.Buffer
	asks sync.Map // how often a path was asked for, *atomic.Int64
	hang sync.Map // paths that do not answer until the channel is closed
	fail error
}

// newBoard returns a board whose root is on a device; lines are further mounts, with
// ROOT for its root directory.
func newBoard(t testing.TB, cfg Config, lines ...string) *board {
	t.Helper()
	b := &board{root: t.TempDir()}
	b.table(t, lines...)
	cfg.Node = b.root
	cfg.Time = time.Hour // how fast the machine is changes nothing
	cfg.Pods = func(context.Context) ([]Pod, error) { return b.pods, b.fail }
	cfg.Log = slog.New(slog.NewTextHandler(&b.logs, nil))
	m, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	m.mountinfo = b.root + "/mountinfo"
	m.statfs = func(path string, into *unix.Statfs_t) error {
		n, _ := b.asks.LoadOrStore(path, new(atomic.Int64))
		n.(*atomic.Int64).Add(1)
		if c, ok := b.hang.Load(path); ok {
			<-c.(chan struct{})
		}
		*into = unix.Statfs_t{Bsize: 4096, Frsize: 1024, Blocks: 1000, Bfree: 400, Bavail: 300, Files: 100, Ffree: 40}
		return nil
	}
	b.Meter = m
	return b
}

func (b *board) table(t testing.TB, lines ...string) {
	t.Helper()
	text := "22 1 179:2 / / rw - ext4 /dev/root rw\n" + strings.ReplaceAll(strings.Join(lines, "\n"), "ROOT", b.root) + "\n"
	if err := os.WriteFile(b.root+"/mountinfo", []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func (b *board) asked(path string) int64 {
	n, ok := b.asks.Load(path)
	if !ok {
		return 0
	}
	return n.(*atomic.Int64).Load()
}

func (b *board) place(path string) Place { return Place{b.root, path} }

func (b *board) pod(t testing.TB, uid string, containers ...string) PodUsage {
	t.Helper()
	u, err := b.Pod(t.Context(), uid, containers)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// numbers formats FsStats in one line, with - for unknown values.
func numbers(f *statsapi.FsStats) string {
	if f == nil {
		return "nothing"
	}
	out := make([]string, 0, 6)
	for _, n := range []*uint64{f.CapacityBytes, f.AvailableBytes, f.UsedBytes, f.Inodes, f.InodesFree, f.InodesUsed} {
		if n == nil {
			out = append(out, "-")
		} else {
			out = append(out, fmt.Sprint(*n))
		}
	}
	return strings.Join(out, " ")
}

func line(path, fstype string) string { return "30 22 0:30 / " + path + " rw - " + fstype + " x rw" }

func TestMeter(t *testing.T) {
	b := newBoard(t, Config{},
		line("ROOT/token", "tmpfs"), line("ROOT/pv", "ext4"),
		"50 22 0:50 / /run/c1/rootfs rw - overlay overlay rw,lowerdir=/l,upperdir=ROOT/layers/7/fs,workdir=/w")
	put(t, b.root+"/empty/f", 5000)
	put(t, b.root+"/hosts", 10)
	put(t, b.root+"/logs/app/0.log", 9000)
	put(t, b.root+"/logs/init/0.log", 3000)
	put(t, b.root+"/layers/7/fs/etc/new", 20000)
	b.pods = []Pod{{
		UID: "u", Namespace: "ns",
		Volumes: []Volume{
			{Name: "empty", Place: b.place("empty"), Ephemeral: true},
			{Name: "token", Place: b.place("token"), Mounted: true},
			{Name: "pv", Place: b.place("pv"), Mounted: true, Claim: "data"},
			{Name: "absent", Place: b.place("absent"), Ephemeral: true},
			{Name: "unmounted", Place: b.place("empty"), Mounted: true, Claim: "later"},
		},
		Containers: []Container{
			{Name: "init", Logs: b.place("logs/init")},
			{Name: "app", ID: "c1", Logs: b.place("logs/app")},
			{Name: "bare"},
		},
		Other: []Place{b.place("hosts"), b.place("none")},
	}}
	all := "1024000 307200 614400 100 40 60"
	on := func(used, inodes uint64) string { return fmt.Sprintf("1024000 307200 %d 100 40 %d", used, inodes) }
	of := func(paths ...string) string {
		for i := range paths {
			paths[i] = b.root + "/" + paths[i]
		}
		return on(blocks(t, paths...), uint64(len(paths)))
	}
	u := b.pod(t, "u", "app", "bare", "unknown")
	if len(u.Containers) != 3 || len(u.Volumes) != 3 {
		t.Fatalf("got %+v", u)
	}
	for _, tc := range []struct {
		name string
		got  *statsapi.FsStats
		want string
	}{
		{"empty", &u.Volumes[0].Stats.FsStats, of("empty", "empty/f")},
		{"token", &u.Volumes[1].Stats.FsStats, all},
		{"pv", &u.Volumes[2].Stats.FsStats, all},
		{"rootfs", u.Containers[0].Rootfs, of("layers/7/fs", "layers/7/fs/etc", "layers/7/fs/etc/new")},
		{"logs", u.Containers[0].Logs, of("logs/app", "logs/app/0.log")},
		{"other", u.Other, of("hosts", "logs/init", "logs/init/0.log")},
		{"no rootfs", u.Containers[1].Rootfs, "nothing"},
		{"no logs", u.Containers[1].Logs, "nothing"},
		{"unknown", u.Containers[2].Logs, "nothing"},
	} {
		if got := numbers(tc.got); got != tc.want {
			t.Errorf("%s: got %s, want %s", tc.name, got, tc.want)
		}
		if tc.got != nil && time.Since(tc.got.Time.Time) > time.Hour {
			t.Errorf("%s: measured at %v", tc.name, tc.got.Time)
		}
	}
	if v := u.Volumes; v[0].Stats.Name != "empty" || !v[0].Ephemeral || v[1].Ephemeral || v[1].Stats.PVCRef != nil || *v[2].Stats.PVCRef != (statsapi.PVCReference{Namespace: "ns", Name: "data"}) {
		t.Errorf("got %+v", v)
	}
	if got := b.pod(t, "another", "app"); got.Containers != nil || got.Volumes != nil || got.Other != nil {
		t.Errorf("of a pod that is not known: %+v", got)
	}
	if b.asked("/") != 1 || b.asked(b.root+"/pv") != 1 {
		t.Errorf("the root was asked %d times, a volume %d", b.asked("/"), b.asked(b.root+"/pv"))
	}
	if b.logs.Len() > 0 {
		t.Error(b.logs.String())
	}
}

// TestFresh checks that stale results are measured again, only on request, and that
// places that are gone are dropped.
func TestFresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard(t, Config{})
		put(t, b.root+"/v/a", 5000)
		b.pods = []Pod{{UID: "u", Volumes: []Volume{{Name: "v", Place: b.place("v")}}}}
		inodes := func() uint64 { return *b.pod(t, "u").Volumes[0].Stats.InodesUsed }
		if n := inodes(); n != 2 {
			t.Fatalf("%d inodes", n)
		}
		put(t, b.root+"/v/b", 1)
		time.Sleep(b.cfg.Fresh - 1)
		if n := inodes(); n != 2 || b.asked("/") != 1 {
			t.Errorf("%d inodes, measured again before time", n)
		}
		time.Sleep(time.Hour)
		if b.asked("/") != 1 {
			t.Error("measured without being asked for")
		}
		if n := inodes(); n != 3 {
			t.Errorf("%d inodes, want the new ones", n)
		}
		if err := os.RemoveAll(b.root + "/v"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(b.cfg.Fresh)
		if v := b.pod(t, "u").Volumes; len(v) != 0 {
			t.Errorf("what is not there has figures: %+v", v)
		}
		b.pods = nil
		time.Sleep(b.cfg.Fresh)
		b.pod(t, "u")
		if k := &b.known; len(k.trees) > 0 || len(k.pods) > 0 || len(k.systems) != 1 {
			t.Errorf("kept: %+v", k)
		}
		b.fail = errors.New("no pods")
		time.Sleep(b.cfg.Fresh)
		if _, err := b.Pod(t.Context(), "u", nil); !errors.Is(err, b.fail) {
			t.Errorf("got %v", err)
		}
		b.fail = nil
		b.pod(t, "u") // the turn was left
	})
}

// TestBound checks that the cost of a request does not grow with the content of the
// disk. Large trees are counted over several requests, one after the other, and do
// not delay small ones.
func TestBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard(t, Config{Entries: 400})
		first := forest(t, b.root+"/big1")
		second := forest(t, b.root+"/big2")
		var small []Volume
		for i := range 20 {
			name := fmt.Sprintf("small%02d", i)
			put(t, b.root+"/"+name+"/a", 5000)
			small = append(small, Volume{Name: name, Place: b.place(name)})
		}
		b.pods = []Pod{{UID: "u", Volumes: append([]Volume{{Name: "big1", Place: b.place("big1")}, {Name: "big2", Place: b.place("big2")}}, small...)}}
		looks, most := 0, Usage{}
		of := func(name string) (u Usage, ok bool) {
			for _, v := range b.pod(t, "u").Volumes {
				if v.Stats.Name == name {
					return Usage{*v.Stats.UsedBytes, *v.Stats.InodesUsed}, true
				}
			}
			return Usage{}, false
		}
		entries := func() (n int) {
			for _, t := range b.known.trees {
				if t.walk != nil {
					n += t.walk.Entries()
				}
			}
			return n
		}
		for done := false; !done; looks++ {
			before := entries()
			u1, _ := of("big1")
			u2, _ := of("big2")
			done = u1 == first && u2 == second
			if more := entries() - before; more > b.cfg.Entries {
				t.Fatalf("look %d took %d entries", looks, more)
			}
			if looks >= 1 && !done {
				for _, v := range small {
					if u, ok := of(v.Name); !ok || u.Inodes != 2 {
						t.Fatalf("look %d: %s is not measured: %+v", looks, v.Name, u)
					}
				}
			}
			if sum := u1.Inodes + u2.Inodes; sum < most.Inodes {
				t.Fatalf("look %d: %d inodes, %d before", looks, sum, most.Inodes)
			} else {
				most.Inodes = sum
			}
			if looks > 200 {
				t.Fatalf("%+v and %+v after %d looks, want %+v", u1, u2, looks, first)
			}
			walks := 0
			for _, t := range b.known.trees {
				if t.walk != nil {
					walks++
				}
			}
			if walks > 1 {
				t.Fatalf("look %d left %d walks", looks, walks)
			}
			time.Sleep(b.cfg.Fresh)
		}
		if least := int(first.Inodes+second.Inodes) / b.cfg.Entries; looks < least {
			t.Errorf("done after %d looks, want %d at least", looks, least)
		}
		// A walk that goes on when the tree is known already does not lower it.
		if err := os.RemoveAll(b.root + "/big1/11"); err != nil {
			t.Fatal(err)
		}
		for range 100 {
			u, ok := of("big1")
			if want := first.Inodes - 9*41 - 1; !ok || u.Inodes > first.Inodes || u.Inodes < want {
				t.Fatalf("got %+v, %v", u, ok)
			} else if u.Inodes == want {
				return
			}
			time.Sleep(b.cfg.Fresh)
		}
		t.Error("what was removed is told for ever")
	})
}

// TestHungMount checks that a file system that does not respond is waited for once
// and called once, and that all others are reported.
func TestHungMount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard(t, Config{}, line("ROOT/nas", "nfs4"), line("ROOT/other", "cifs"))
		put(t, b.root+"/v/a", 5000)
		b.pods = []Pod{{UID: "u", Namespace: "ns", Volumes: []Volume{
			{Name: "nas", Place: b.place("nas"), Mounted: true, Claim: "nas"},
			{Name: "v", Place: b.place("v")},
			{Name: "other", Place: b.place("other"), Mounted: true, Claim: "other"},
		}}}
		nas := b.root + "/nas"
		names := func() string {
			var out []string
			for _, v := range b.pod(t, "u").Volumes {
				out = append(out, v.Stats.Name)
			}
			return strings.Join(out, " ")
		}
		if got := names(); got != "nas v other" {
			t.Fatalf("got %s", got)
		}
		good := time.Now()
		release := make(chan struct{})
		b.hang.Store(nas, release)
		for i := range 3 {
			time.Sleep(b.cfg.Fresh)
			begun := time.Now()
			if got := names(); got != "nas v other" {
				t.Errorf("look %d: got %s", i, got)
			}
			if i == 0 != (time.Since(begun) == b.cfg.RemoteTimeout) {
				t.Errorf("look %d took %v", i, time.Since(begun))
			}
			if at := b.pod(t, "u").Volumes[0].Stats.Time.Time; !at.Equal(good) {
				t.Errorf("look %d: the figures of before are of %v, want %v", i, at, good)
			}
		}
		if n := b.asked(nas); n != 2 {
			t.Errorf("it was asked %d times, want the good one and the one that hangs", n)
		}
		close(release)
		synctest.Wait()
		time.Sleep(b.cfg.Fresh)
		if at := b.pod(t, "u").Volumes[0].Stats.Time.Time; !at.Equal(time.Now()) {
			t.Errorf("after it answers again its figures are of %v", at)
		}
	})
}

// TestHungTree checks that directories on file systems that are not local are walked
// in a separate goroutine.
func TestHungTree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard(t, Config{}, line("ROOT/far", "nfs"))
		put(t, b.root+"/far/v/a", 5000)
		b.pods = []Pod{{UID: "u", Volumes: []Volume{{Name: "v", Place: b.place("far/v")}}}}
		if v := b.pod(t, "u").Volumes; len(v) != 1 || *v[0].Stats.InodesUsed != 2 {
			t.Fatalf("got %+v", v)
		}
		release := make(chan struct{})
		b.hang.Store(b.root+"/far", release)
		time.Sleep(b.cfg.Fresh)
		put(t, b.root+"/far/v/b", 1)
		if v := b.pod(t, "u").Volumes; len(v) != 1 || *v[0].Stats.InodesUsed != 2 {
			t.Errorf("while it hangs: %+v", v)
		}
		close(release)
		synctest.Wait()
		time.Sleep(b.cfg.Fresh)
		if v := b.pod(t, "u").Volumes; len(v) != 1 || *v[0].Stats.InodesUsed != 3 {
			t.Errorf("afterwards: %+v", v)
		}
	})
}

// TestEndless checks that a walk that never finishes is ended, and logged once.
func TestEndless(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard(t, Config{Entries: 100})
		b.endless = 250
		whole := forest(t, b.root+"/v")
		put(t, b.root+"/w/f", 1)
		b.pods = []Pod{{UID: "u", Volumes: []Volume{{Name: "v", Place: b.place("v")}, {Name: "w", Place: b.place("w")}}}}
		most := uint64(0)
		for range 20 {
			for _, v := range b.pod(t, "u").Volumes {
				most = max(most, *v.Stats.InodesUsed)
			}
			time.Sleep(b.cfg.Fresh)
		}
		if most < 200 || most >= whole.Inodes || strings.Count(b.logs.String(), errEndless.Error()) != 1 {
			t.Errorf("counted %d of %d; %s", most, whole.Inodes, b.logs.String())
		}
	})
}

// TestClientLeaves checks that a measurement ends early when its client has
// disconnected, and that the next request continues it.
func TestClientLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard(t, Config{})
		want := forest(t, b.root+"/v")
		b.pods = []Pod{{UID: "u", Volumes: []Volume{{Name: "v", Place: b.place("v")}}}}
		ctx, cancel := context.WithCancel(t.Context())
		pods := b.cfg.Pods
		b.cfg.Pods = func(ctx context.Context) ([]Pod, error) { cancel(); return pods(ctx) }
		if u, err := b.Pod(ctx, "u", nil); err == nil && len(u.Volumes) > 0 && *u.Volumes[0].Stats.InodesUsed == want.Inodes {
			t.Error("all was counted for nobody")
		}
		for range 2 {
			time.Sleep(b.cfg.Fresh)
			b.pod(t, "u")
		}
		if v := b.pod(t, "u").Volumes; len(v) != 1 || *v[0].Stats.InodesUsed != want.Inodes {
			t.Errorf("got %+v, want %+v", v, want)
		}
	})
}

func TestWaitForTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard(t, Config{}, line("ROOT/nas", "nfs4"))
		release := make(chan struct{})
		b.hang.Store(b.root+"/nas", release)
		b.pods = []Pod{{UID: "u", Volumes: []Volume{{Name: "nas", Place: b.place("nas")}}}}
		go func() {
			if _, err := b.Pod(t.Context(), "u", nil); err != nil {
				t.Error(err)
			}
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeoutCause(t.Context(), b.cfg.RemoteTimeout/2, errors.New("the client went"))
		defer cancel()
		if _, err := b.Claims(ctx); err == nil || !strings.Contains(err.Error(), "the client went") {
			t.Errorf("got %v", err)
		}
		if _, err := b.Claims(t.Context()); err != nil {
			t.Error(err)
		}
		close(release)
	})
}

func TestNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked int
		var fail error
		info := &runtimeapi.ImageFsInfoResponse{}
		b := newBoard(t, Config{ImageFs: func(context.Context) (*runtimeapi.ImageFsInfoResponse, error) { asked++; return info, fail }}, line("ROOT/images", "xfs"))
		node := func() NodeUsage {
			u, err := b.Node(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return u
		}
		u := node()
		if got := numbers(u.Fs); got != "1024000 307200 614400 100 40 60" || u.ImageFs != nil || u.ContainerFs != nil {
			t.Errorf("got %s, %+v", got, u)
		}
		for range 2 {
			node()
			time.Sleep(b.cfg.Fresh)
			node()
		}
		if asked != 3 || strings.Count(b.logs.String(), "\n") != 1 {
			t.Errorf("asked %d times; %s", asked, b.logs.String())
		}
		info.ImageFilesystems = []*runtimeapi.FilesystemUsage{{
			Timestamp: 5e9, FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: b.root + "/images/overlay"},
			UsedBytes: &runtimeapi.UInt64Value{Value: 7}, InodesUsed: &runtimeapi.UInt64Value{Value: 3},
		}}
		for _, failing := range []error{nil, errors.New("no runtime"), nil} {
			fail = failing
			time.Sleep(b.cfg.Fresh)
			u = node()
			if got := numbers(u.ImageFs); got != "1024000 307200 7 100 40 3" || numbers(u.ContainerFs) != got || u.ImageFs.Time.Unix() != 5 {
				t.Errorf("images: %s, %+v", got, u)
			}
		}
		if n := b.asked(b.root + "/images"); n != 3 {
			t.Errorf("the images' file system was asked %d times", n)
		}
	})
}

func TestClaims(t *testing.T) {
	b := newBoard(t, Config{}, line("ROOT/a", "ext4"), line("ROOT/b", "vfat"))
	statfs := b.statfs
	b.statfs = func(path string, into *unix.Statfs_t) error {
		err := statfs(path, into)
		if strings.HasSuffix(path, "/b") {
			into.Files, into.Ffree = 0, 0
		}
		return err
	}
	a := Volume{Name: "a", Place: b.place("a"), Mounted: true, Claim: "data"}
	b.pods = []Pod{
		{UID: "1", Namespace: "x", Volumes: []Volume{a, {Name: "e", Place: b.place("e")}}},
		{UID: "2", Namespace: "x", Volumes: []Volume{a}},
		{UID: "3", Namespace: `y"`, Volumes: []Volume{{Name: "b", Place: b.place("b"), Mounted: true, Claim: "data"}}},
	}
	claims, err := b.Claims(t.Context())
	if err != nil || len(claims) != 2 {
		t.Fatalf("got %+v, %v", claims, err)
	}
	var out bytes.Buffer
	stream := metrics.NewStream(&out)
	WriteClaims(stream, claims)
	if err := stream.Flush(); err != nil {
		t.Fatal(err)
	}
	var samples []string
	for l := range strings.Lines(out.String()) {
		if !strings.HasPrefix(l, "#") {
			samples = append(samples, l)
		}
	}
	want := `kubelet_volume_stats_capacity_bytes{namespace="x",persistentvolumeclaim="data"} 1024000
kubelet_volume_stats_capacity_bytes{namespace="y\"",persistentvolumeclaim="data"} 1024000
kubelet_volume_stats_available_bytes{namespace="x",persistentvolumeclaim="data"} 307200
kubelet_volume_stats_available_bytes{namespace="y\"",persistentvolumeclaim="data"} 307200
kubelet_volume_stats_used_bytes{namespace="x",persistentvolumeclaim="data"} 614400
kubelet_volume_stats_used_bytes{namespace="y\"",persistentvolumeclaim="data"} 614400
kubelet_volume_stats_inodes{namespace="x",persistentvolumeclaim="data"} 100
kubelet_volume_stats_inodes_free{namespace="x",persistentvolumeclaim="data"} 40
kubelet_volume_stats_inodes_used{namespace="x",persistentvolumeclaim="data"} 60
`
	if got := strings.Join(samples, ""); got != want {
		t.Errorf("got\n%s", out.String())
	}
}

// TestRealMounts uses the kernel's mount table and stats.
func TestRealMounts(t *testing.T) {
	root := t.TempDir()
	put(t, mounted(t, root+"/link/m", "size=1m,nr_inodes=50")+"/f", 100<<10)
	put(t, root+"/link/d/f", 5000)
	put(t, mounted(t, root+"/link/d/sub", "")+"/hidden", 1<<20)
	if err := os.Symlink(root+"/link", root+"/operators"); err != nil {
		t.Fatal(err)
	}
	at := func(path string) Place { return Place{root + "/operators", path} }
	m, err := New(Config{
		Node: root, Log: slog.New(slog.DiscardHandler), Time: time.Hour,
		Pods: func(context.Context) ([]Pod, error) {
			return []Pod{{UID: "u", Volumes: []Volume{{Name: "m", Place: at("m"), Mounted: true}, {Name: "d", Place: at("d")}, {Name: "n", Place: at("none"), Mounted: true}}}}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	u, err := m.Pod(t.Context(), "u", nil)
	if err != nil || len(u.Volumes) != 2 {
		t.Fatalf("got %+v, %v", u, err)
	}
	if got := numbers(&u.Volumes[0].Stats.FsStats); got != "1048576 946176 102400 50 48 2" {
		t.Errorf("memory: %s", got)
	}
	d := u.Volumes[1].Stats
	if want := blocks(t, root+"/link/d", root+"/link/d/f"); *d.UsedBytes != want || *d.InodesUsed != 2 {
		t.Errorf("directory: %s, want %d bytes", numbers(&d.FsStats), want)
	}
	n, err := m.Node(t.Context())
	if err != nil || n.Fs == nil || *n.Fs.CapacityBytes < *n.Fs.UsedBytes || *n.Fs.CapacityBytes == 0 {
		t.Errorf("node: %+v, %v", n, err)
	}
}

func TestConcurrent(t *testing.T) {
	b := newBoard(t, Config{Fresh: 1, Entries: 50}, line("ROOT/nas", "nfs"))
	forest(t, b.root+"/v")
	b.pods = []Pod{{UID: "u", Volumes: []Volume{{Name: "v", Place: b.place("v")}, {Name: "nas", Place: b.place("nas/x"), Claim: "c"}}}}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 10 {
				_, e1 := b.Pod(t.Context(), "u", []string{"c"})
				_, e2 := b.Node(t.Context())
				_, e3 := b.Claims(t.Context())
				if err := errors.Join(e1, e2, e3); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
}

func TestNewNeeds(t *testing.T) {
	if _, err := New(Config{Node: "/"}); err == nil {
		t.Error("made without what it needs")
	}
}
