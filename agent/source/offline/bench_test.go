package offline

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// boardPod is a pod of usual size, some 3 kB.
func boardPod(number int) *v1.Pod {
	return aPod(fmt.Sprintf("4fd2a1f0-%04d", number), func(p *v1.Pod) {
		c := &p.Spec.Containers[0]
		for i := range 15 {
			c.Env = append(c.Env, v1.EnvVar{Name: fmt.Sprint("NAME_", i), Value: strings.Repeat("v", 40)})
		}
		c.Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse("100m"), v1.ResourceMemory: resource.MustParse("64Mi")}
		c.Args = strings.Fields(strings.Repeat("--argument=value ", 20))
		p.Spec.Containers = append(p.Spec.Containers, *c, *c)
		p.Spec.Volumes[0].ConfigMap.Name = fmt.Sprint("map-", number)
	})
}

// board is a store of 30 pods and a reader that has read for them.
func board(tb testing.TB, key func() ([]byte, error)) (*Store, *Reader, *server) {
	tb.Helper()
	s := mustOpen(tb, Config{Dir: tb.TempDir(), Key: key})
	api := newServer()
	r := s.Reader(api)
	for number := range 30 {
		name := fmt.Sprint("map-", number)
		api.set("ns", name, "1", strings.Repeat("x", 4000))
		if _, err := r.ConfigMap(tb.Context(), "ns", name); err != nil {
			tb.Fatal(err)
		}
		mustAdmit(tb, s, boardPod(number))
	}
	return s, r, api
}

// BenchmarkAdmitUnchanged writes nothing.
func BenchmarkAdmitUnchanged(b *testing.B) {
	s, _, _ := board(b, nil)
	p := boardPod(3)
	disk := fill(s)
	b.ReportAllocs()
	for b.Loop() {
		mustAdmit(b, s, p)
	}
	if disk.writes > 0 {
		b.Errorf("%d writes", disk.writes)
	}
}

// BenchmarkAdmitChanged is with the disk's time.
func BenchmarkAdmitChanged(b *testing.B) {
	s, _, _ := board(b, nil)
	pods := [2]*v1.Pod{boardPod(3), boardPod(3)}
	pods[1].Labels["app"] = "b"
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		mustAdmit(b, s, pods[i%2])
	}
}

// BenchmarkReplay is what a start waits for: 30 pods and 30 ConfigMaps.
func BenchmarkReplay(b *testing.B) {
	for name, key := range map[string]func() ([]byte, error){"plain": nil, "sealed": keyOf(1)} {
		b.Run(name, func(b *testing.B) {
			s, _, _ := board(b, key)
			must(b, s.Close())
			b.ReportAllocs()
			for b.Loop() {
				s, err := Open(s.config)
				if err != nil {
					b.Fatal(err)
				}
				if got := len(s.Pods()); got != 30 {
					b.Fatal(got)
				}
				must(b, s.Close())
			}
		})
	}
}

// BenchmarkRead is of an object that the journal has and the server answers.
func BenchmarkRead(b *testing.B) {
	_, r, _ := board(b, nil)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.ConfigMap(b.Context(), "ns", "map-3"); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkReadOffline is of one that only the journal answers.
func BenchmarkReadOffline(b *testing.B) {
	_, r, api := board(b, nil)
	api.state(false, errLink)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.ConfigMap(b.Context(), "ns", "map-3"); err != nil {
			b.Fatal(err)
		}
	}
}

// TestCosts keeps the cost of what is done often.
func TestCosts(t *testing.T) {
	s, r, _ := board(t, nil)
	p, disk := boardPod(3), fill(s)
	for _, row := range []struct {
		name string
		most float64
		run  func() error
	}{
		{"admit what is unchanged", 40, func() error { return s.Admit(t.Context(), p) }},
		{"read", 7, func() error {
			_, err := r.ConfigMap(t.Context(), "ns", "map-3")
			return err
		}},
	} {
		if got := testing.AllocsPerRun(20, func() {
			if err := row.run(); err != nil {
				t.Fatal(err)
			}
		}); got > row.most {
			t.Errorf("%s: %.0f allocations, at most %.0f", row.name, got, row.most)
		}
		if disk.writes > 0 {
			t.Errorf("%s: %d writes", row.name, disk.writes)
		}
	}
}
