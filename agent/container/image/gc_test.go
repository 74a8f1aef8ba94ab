package image

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/container/fake"
	"github.com/tinylet/tinylet/agent/pod/event"
)

// dump is a board whose disk of 1000 bytes holds images and other files.
type dump struct {
	*testing.T
	rt     *fake.Runtime
	gc     *GC
	events *event.Recorder

	mu       sync.Mutex
	inUse    []string
	other    int64
	measured int
	broken   error
}

func garbage(t *testing.T, edit func(*GCConfig), test func(*dump)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		log := slog.New(slog.DiscardHandler)
		d := &dump{T: t, rt: fake.New(fake.Config{ImageFs: "/images"}), events: event.NewRecorder(log)}
		c := GCConfig{
			Images: d.rt, Events: d.events, Log: log,
			High: 85, Low: 80, MinAge: 2 * time.Minute,
			InUse: func() []string { d.mu.Lock(); defer d.mu.Unlock(); return slices.Clone(d.inUse) },
			Usage: d.usage,
		}
		if edit != nil {
			edit(&c)
		}
		gc, err := NewGC(c)
		if err != nil {
			t.Fatal(err)
		}
		d.gc = gc
		test(d)
	})
}

func (d *dump) usage(path string) (Usage, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if path != "/images" {
		d.Errorf("the disk at %q is measured", path)
	}
	d.measured++
	return Usage{Capacity: 1000, Available: 1000 - d.other - int64(d.rt.ImageBytes())}, d.broken
}

func (d *dump) use(refs ...string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.inUse = refs
}

func (d *dump) add(name string, size uint64) {
	d.rt.AddImage(name, fake.Program{})
	d.rt.EditImage(name, func(img *runtimeapi.Image) { img.Size = size })
}

// run lets the GC run for a while.
func (d *dump) run(span time.Duration) {
	d.Helper()
	ctx, cancel := context.WithTimeout(d.Context(), span)
	defer cancel()
	if err := d.gc.Run(ctx); !errors.Is(err, context.DeadlineExceeded) {
		d.Errorf("Run ended with %v", err)
	}
}

func (d *dump) images() []string {
	list, err := d.rt.ListImages(d.Context(), nil)
	if err != nil {
		d.Fatal(err)
	}
	var out []string
	for _, img := range list {
		out = append(out, strings.TrimPrefix(img.GetRepoTags()[0], "docker.io/library/"))
	}
	return out
}

func (d *dump) left(want ...string) {
	d.Helper()
	if diff := cmp.Diff(want, d.images()); diff != "" {
		d.Errorf("images (-want +got):\n%s", diff)
	}
}

func (d *dump) warnings() (out []string) {
	for _, e := range d.events.Recent() {
		out = append(out, e.Reason)
	}
	return out
}

func TestIdleCostsOneStatfs(t *testing.T) {
	garbage(t, nil, func(d *dump) {
		d.add("a:1", 500)
		d.run(time.Second)
		before, measured := d.rt.Count(), d.measured
		d.use("a:1")
		d.run(10 * gcPeriod)
		if n := d.rt.Count() - before; n > 0 {
			t.Errorf("%d calls of the runtime while there is nothing to do: %v", n, d.rt.Calls()[before:])
		}
		if n := d.measured - measured; n < 9 || n > 11 {
			t.Errorf("the disk was measured %d times in ten periods", n)
		}
	})
}

func TestLeastRecentlyUsedGoes(t *testing.T) {
	garbage(t, nil, func(d *dump) {
		for _, name := range []string{"a:1", "b:1", "c:1", "d:1"} {
			d.add(name, 200)
		}
		for _, name := range []string{"c:1", "docker.io/library/a:1", "d:1"} {
			d.use(name)
			d.run(gcPeriod + 2*time.Minute)
		}
		d.left("a:1", "b:1", "c:1", "d:1")
		d.use("nothing:1")
		d.other = 60 // 86 %: b was never used
		d.run(2 * gcPeriod)
		d.left("a:1", "c:1", "d:1")
		d.other = 450 // 105 %: c was used before a
		d.run(2 * gcPeriod)
		d.left("d:1")
		if w := d.warnings(); len(w) > 0 {
			t.Errorf("events: %v", w)
		}
	})
}

func TestOnlyAsManyAsNeeded(t *testing.T) {
	garbage(t, nil, func(d *dump) {
		for i := range 9 {
			d.add(fmt.Sprintf("a:%d", i), 100)
		}
		d.run(2 * gcPeriod)
		if n := len(d.images()); n != 8 { // 90 % is too much, 80 % is not
			t.Errorf("%d images are left, want 8", n)
		}
		before := d.rt.Count("ListImages")
		d.run(gcPeriod)
		if n := d.rt.Count("ListImages") - before; n != 0 {
			t.Errorf("%d lists at 80 %%", n)
		}
	})
}

func TestProtectedImages(t *testing.T) {
	garbage(t, nil, func(d *dump) {
		for _, name := range []string{"byname:1", "byid:1", "bydigest:1", "pinned:1", "container:1", "unused:1"} {
			d.add(name, 10)
		}
		d.rt.EditImage("pinned:1", func(img *runtimeapi.Image) { img.Pinned = true })
		digest, err := d.rt.ImageStatus(d.Context(), &runtimeapi.ImageSpec{Image: "bydigest:1"})
		if err != nil {
			t.Fatal(err)
		}
		byID, err := d.rt.ImageStatus(d.Context(), &runtimeapi.ImageSpec{Image: "byid:1"})
		if err != nil {
			t.Fatal(err)
		}
		_, sum, _ := strings.Cut(digest.GetRepoDigests()[0], "@")
		d.use("byname:1", byID.GetId(), "bydigest:1@"+sum)
		sandbox := &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: "p", Namespace: "n", Uid: "u"}}
		id, err := d.rt.RunPodSandbox(d.Context(), sandbox, "")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := d.rt.CreateContainer(d.Context(), id, &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: "c"}, Image: &runtimeapi.ImageSpec{Image: "container:1"},
		}, sandbox); err != nil {
			t.Fatal(err)
		}
		d.other = 920
		d.run(gcPeriod * 3)
		d.left("bydigest:1", "byid:1", "byname:1", "container:1", "pinned:1")
		if !slices.Contains(d.warnings(), eventFreeDiskSpace) || !slices.Contains(d.warnings(), eventGCFailed) {
			t.Errorf("events: %v", d.warnings())
		}
		if n := len(d.warnings()); n != 2 {
			t.Errorf("%d different events, want 2: %v", n, d.events.Recent())
		}
	})
}

// TestYoungImages shows that an image which was just pulled is not removed,
// and is as soon as it may be.
func TestYoungImages(t *testing.T) {
	garbage(t, nil, func(d *dump) {
		d.run(time.Second)
		d.add("new:1", 900)
		begun := time.Now()
		_, _ = d.gc.collect(d.Context(), false)
		d.left("new:1")
		d.run(2*time.Minute + time.Second)
		d.left()
		if took := time.Since(begun); took > 3*time.Minute {
			t.Errorf("the image went after %v", took)
		}
	})
}

func TestMaxAge(t *testing.T) {
	garbage(t, func(c *GCConfig) { c.MaxAge = time.Hour }, func(d *dump) {
		d.add("unused:1", 10)
		d.add("used:1", 10)
		d.add("once:1", 10)
		d.use("used:1", "once:1")
		d.run(50 * time.Minute)
		d.use("used:1")
		d.left("once:1", "unused:1", "used:1")
		d.add("late:1", 10)
		d.run(20 * time.Minute)
		d.left("late:1", "once:1", "used:1")
		d.run(time.Hour)
		d.left("used:1")
	})
}

// TestMaxAgeFreesEnough shows that the removal by age counts before one for space.
func TestMaxAgeFreesEnough(t *testing.T) {
	garbage(t, func(c *GCConfig) { c.MaxAge = time.Hour }, func(d *dump) {
		d.add("old:1", 200)
		d.run(50 * time.Minute)
		d.add("young:1", 200)
		d.run(9 * time.Minute)
		time.Sleep(5 * time.Minute)
		d.other = 500
		d.run(time.Minute)
		d.left("young:1")
		if w := d.warnings(); len(w) > 0 {
			t.Errorf("events: %v", w)
		}
	})
}

func TestNoneForSpaceAt100(t *testing.T) {
	garbage(t, func(c *GCConfig) { c.High, c.Low = 100, 100 }, func(d *dump) {
		d.add("a:1", 1000)
		d.run(3 * gcPeriod)
		d.left("a:1")
	})
}

func TestRemoveUnused(t *testing.T) {
	garbage(t, nil, func(d *dump) {
		d.add("a:1", 10)
		d.add("b:1", 10)
		d.use("b:1")
		d.run(3 * time.Minute)
		d.add("young:1", 10)
		if err := d.gc.RemoveUnused(d.Context()); err != nil {
			t.Fatal(err)
		}
		d.left("b:1", "young:1")
	})
}

// TestThereBeforeTheAgent shows that images present at the agent's start do
// not count as new, as with a kubelet (Start in
// pkg/kubelet/images/image_gc_manager.go).
func TestThereBeforeTheAgent(t *testing.T) {
	garbage(t, nil, func(d *dump) {
		d.add("old:1", 10)
		d.add("used:1", 10)
		d.use("used:1")
		if err := d.gc.RemoveUnused(d.Context()); err != nil {
			t.Fatal(err)
		}
		d.left("used:1")
	})
}

// TestNoListForDays shows that an image which a pod used earlier does not count
// as new merely because images were not listed since it was pulled.
func TestNoListForDays(t *testing.T) {
	garbage(t, nil, func(d *dump) {
		d.run(time.Minute)
		d.add("once:1", 10)
		d.use("once:1")
		d.run(24 * time.Hour)
		d.use()
		d.run(time.Hour)
		if err := d.gc.RemoveUnused(d.Context()); err != nil {
			t.Fatal(err)
		}
		d.left()
	})
}

// TestWantedMeanwhile adds a pod that needs the image between list and removal.
func TestWantedMeanwhile(t *testing.T) {
	garbage(t, nil, func(d *dump) {
		d.add("a:1", 400)
		d.add("b:1", 400)
		d.run(3 * time.Minute)
		d.rt.Inject("RemoveImage", fake.Fault{Times: 1, Delay: time.Second, Match: func(string) bool {
			d.use("a:1", "b:1")
			return true
		}})
		d.other = 700
		if _, err := d.gc.collect(d.Context(), false); err == nil {
			t.Error("too little was freed, and no error")
		}
		if n := len(d.images()); n != 1 {
			t.Errorf("%d images are left, want 1", n)
		}
	})
}

func TestGCFailures(t *testing.T) {
	t.Run("runtime is away at first", func(t *testing.T) {
		garbage(t, nil, func(d *dump) {
			d.add("a:1", 900)
			d.rt.Stop()
			d.run(time.Minute)
			if w := d.warnings(); len(w) > 0 {
				t.Errorf("one failure makes events: %v", w)
			}
			d.run(2 * gcPeriod)
			if diff := cmp.Diff([]string{eventGCFailed}, d.warnings()); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			d.rt.Start()
			d.run(3 * gcPeriod)
			d.left()
		})
	})
	t.Run("an image cannot be removed", func(t *testing.T) {
		garbage(t, nil, func(d *dump) {
			d.add("a:1", 400)
			d.add("b:1", 400)
			d.run(3 * time.Minute)
			d.other = 150
			d.rt.Inject("RemoveImage", fake.Fault{Times: 1, Err: errors.New("read-only filesystem")})
			if _, err := d.gc.collect(d.Context(), false); err == nil || !strings.Contains(err.Error(), "read-only") {
				t.Errorf("Collect: %v", err)
			}
			if n := len(d.images()); n != 1 {
				t.Errorf("%d images are left, want 1", n)
			}
		})
	})
	for name, fault := range map[string]error{"runtime goes away": container.ErrUnavailable, "runtime hangs": container.ErrTimeout} {
		t.Run(name, func(t *testing.T) {
			garbage(t, nil, func(d *dump) {
				for _, image := range []string{"a:1", "b:1", "c:1"} {
					d.add(image, 100)
				}
				d.rt.Inject("RemoveImage", fake.Fault{Err: fault})
				for i, other := range []int64{0, 600} { // everything, then for space
					d.other = other
					_, err := d.gc.collect(d.Context(), other == 0)
					if n := d.rt.Count("RemoveImage"); n != i+1 || strings.Count(fmt.Sprint(err), fault.Error()) != 1 {
						t.Errorf("%d calls, want %d: %v", n, i+1, err)
					}
				}
			})
		})
	}
	t.Run("context ends", func(t *testing.T) {
		garbage(t, nil, func(d *dump) {
			ctx, cancel := context.WithCancel(d.Context())
			images := []candidate{{image: &runtimeapi.Image{Id: "a"}}, {image: &runtimeapi.Image{Id: "b"}}}
			cancel()
			if err := d.gc.removeAll(ctx, images, "space"); strings.Count(fmt.Sprint(err), context.Canceled.Error()) != 1 {
				t.Errorf("removeAll: %v", err)
			}
		})
	})
	t.Run("no capacity", func(t *testing.T) {
		garbage(t, func(c *GCConfig) { c.Usage = func(string) (Usage, error) { return Usage{}, nil } }, func(d *dump) {
			if _, err := d.gc.collect(d.Context(), false); err == nil {
				t.Error("no error")
			}
			if diff := cmp.Diff([]string{eventInvalidCapacity}, d.warnings()); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	})
	t.Run("the folder moved", func(t *testing.T) {
		garbage(t, nil, func(d *dump) {
			d.broken = errors.New("no such folder")
			for range 2 {
				if _, err := d.gc.collect(d.Context(), false); err == nil {
					t.Error("no error")
				}
			}
			if n := d.rt.Count("ImageFsInfo"); n != 2 {
				t.Errorf("the runtime was asked %d times for the folder, want 2", n)
			}
		})
	})
}

func TestGCConfigRefused(t *testing.T) {
	for _, c := range []GCConfig{{High: 101}, {High: 80, Low: 85}, {High: 80, Low: -1}, {High: 80, MinAge: -1}, {High: 80, MaxAge: -1}} {
		if _, err := NewGC(c); err == nil {
			t.Errorf("%+v was accepted", c)
		}
	}
}

func TestUsage(t *testing.T) {
	for _, tt := range []struct {
		u       Usage
		percent int
		missing int64 // for 80 %
	}{
		{Usage{1000, 150}, 85, 50},
		{Usage{1000, 151}, 85, 49},
		{Usage{1000, 159}, 85, 41},
		{Usage{1000, 160}, 84, 40},
		{Usage{1000, 1000}, 0, 0},
		{Usage{1000, 200}, 80, 0},
		{Usage{1<<40 + 99, 0}, 100, (1<<40 + 99) / 5},
		{Usage{math.MaxInt64, math.MaxInt64}, 0, 0},
		{Usage{math.MaxInt64, 0}, 100, math.MaxInt64 / 5},
	} {
		if p, m := tt.u.percent(), tt.u.bytesToFree(80); p != tt.percent || m != tt.missing {
			t.Errorf("%+v: %d %%, %d missing; want %d, %d", tt.u, p, m, tt.percent, tt.missing)
		}
	}
	u, err := statfs(t.TempDir())
	if err != nil || u.Capacity <= 0 || u.Available < 0 || u.Available > u.Capacity {
		t.Errorf("statfs: %+v, %v", u, err)
	}
	if _, err := statfs("/nowhere/at/all"); err == nil {
		t.Error("a folder that does not exist was measured")
	}
}
