package podsync

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/container/fake"
	"github.com/tinylet/tinylet/cgroups"
)

// unwritable can write only the cgroup of the pod.
type unwritable struct{ Cgroups }

func (unwritable) Exists(string) bool { return false }

func (unwritable) Ensure(path string, _ cgroups.Resources) error {
	if strings.HasSuffix(path, "poduid") {
		return nil
	}
	return errors.New("no space")
}

func (unwritable) ID(string) (uint64, error) { return 0, cgroups.ErrNotFound }

func (unwritable) MemoryCurrent(string) (uint64, error) { return 0, nil }

func (unwritable) WithoutLowMemoryMax(_ string, r cgroups.Resources) (cgroups.Resources, bool) {
	return r, false
}

func TestParentCgroupsCannotBeWritten(t *testing.T) {
	onBench(t, func(c *Config) { c.Cgroups = unwritable{} }, func(b *bench) {
		p := podOn(nil)
		b.OnPodAdded(p)
		const want = "cgroup of all pods of a class: no space"
		if _, err := b.Sync(b.t.Context(), p); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
		if got := b.warnings(); !slices.Equal(got, []string{reasonFailedPodCgroup + ": " + want}) {
			t.Errorf("events %q", got)
		}
	})
}

func TestSubPathErrorNamesContainerOnce(t *testing.T) {
	onBench(t, nil, func(b *bench) {
		p := podOn(func(p *v1.Pod) {
			p.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/nonexistent"}}}}
			p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "v", MountPath: "/v", SubPath: "x"}}
		})
		b.OnPodAdded(p)
		if _, err := b.Sync(b.t.Context(), p); err == nil || strings.Count(err.Error(), "container") != 1 {
			t.Errorf("got %v", err)
		}
	})
}

// The runtime may still create a container after a timeout, with its message file.
func TestMessageOfLateContainer(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want int
	}{{container.ErrTimeout, 1}, {container.ErrUnavailable, 1}, {errors.New("invalid"), 0}} {
		t.Run(tc.err.Error(), func(t *testing.T) {
			onBench(t, nil, func(b *bench) {
				p := podOn(nil)
				b.rt.Inject("CreateContainer", fake.Fault{Err: tc.err, Late: true, Times: 1})
				b.OnPodAdded(p)
				if _, err := b.Sync(b.t.Context(), p); !errors.Is(err, tc.err) {
					t.Fatalf("got %v", err)
				}
				files, err := os.ReadDir(filepath.Join(b.dir, "pods", string(p.UID), "containers", "app"))
				if err != nil || len(files) != tc.want {
					t.Errorf("%d message files, %v, want %d", len(files), err, tc.want)
				}
			})
		})
	}
}
