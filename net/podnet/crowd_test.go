package podnet

import (
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/net/cni"
	"github.com/tinylet/tinylet/net/ipam"
	"github.com/tinylet/tinylet/net/netns/nstest"
	"github.com/tinylet/tinylet/net/nft"
)

// TestCrowd sets up and takes down a thousand pods, forty at a time, and never
// gives an address or a port twice.
func TestCrowd(t *testing.T) {
	const workers, rounds = 40, 25
	l := newLab(t, func(c *cni.Config) { c.Ranges = c.Ranges[:1] })
	var (
		mu    sync.Mutex
		taken = map[netip.Addr]string{}
		wg    sync.WaitGroup
	)
	for w := range workers {
		ns := nstest.New(t)
		wg.Go(func() {
			for round := range rounds {
				p := Pod{
					ID:    cni.ID{ContainerID: fmt.Sprintf("%032x%032x", w, round), Interface: "eth0"},
					NetNS: fmt.Sprintf("/proc/self/fd/%d", ns.Fd()), Namespace: "crowd", Name: fmt.Sprintf("p%d-%d", w, round),
					Ports: []nft.Port{{Protocol: nft.TCP, Host: uint16(20000 + w), Target: 80}},
				}
				if err := l.on(func() error {
					r, err := l.net.Setup(p)
					if err != nil {
						return err
					}
					address := r.Addresses[0].Addr()
					mu.Lock()
					other, twice := taken[address]
					taken[address] = p.Name
					mu.Unlock()
					if twice {
						return fmt.Errorf("%s and %s have %v", other, p.Name, address)
					}
					if err := l.net.Check(p); err != nil {
						return err
					}
					mu.Lock()
					delete(taken, address)
					mu.Unlock()
					return l.net.Teardown(p.ID)
				}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if left := l.state(); left != "" {
		t.Errorf("left:\n%s", left)
	}
}

// BenchmarkSetup is one more pod with two ports of the host, where there are
// none and where there are 200 such pods; what it takes to take it down is
// told apart.
func BenchmarkSetup(b *testing.B) {
	for _, others := range []int{0, 200} {
		b.Run(fmt.Sprintf("beside_%d", others), func(b *testing.B) {
			l := newLab(b, func(c *cni.Config) { c.Ranges = []ipam.Range{{Prefix: prefix("10.88.0.0/16")}} })
			for i := range others {
				l.start(func(p *Pod) {
					p.Ports = []nft.Port{{Protocol: nft.TCP, Host: uint16(10000 + i), Target: 80}, {Protocol: nft.UDP, Host: uint16(10000 + i), Target: 53}}
				})
			}
			p := l.newPod()
			p.Ports = []nft.Port{{Protocol: nft.TCP, Host: 9000, Target: 80}, {Protocol: nft.UDP, Host: 9000, Target: 53}}
			b.ReportAllocs()
			var spent time.Duration
			l.must(func() error {
				for b.Loop() {
					before := processor()
					if _, err := l.net.Setup(p.Pod); err != nil {
						return err
					}
					spent += processor() - before
					b.StopTimer()
					if err := l.net.Teardown(p.ID); err != nil {
						return err
					}
					b.StartTimer()
				}
				return nil
			})
			b.ReportMetric(float64(spent.Microseconds())/1000/float64(b.N), "cpu-ms/op")
		})
	}
}

func BenchmarkTeardown(b *testing.B) {
	l := newLab(b, func(c *cni.Config) { c.Ranges = c.Ranges[:1] })
	p := l.newPod()
	b.ReportAllocs()
	var spent time.Duration
	l.must(func() error {
		for b.Loop() {
			b.StopTimer()
			if _, err := l.net.Setup(p.Pod); err != nil {
				return err
			}
			b.StartTimer()
			before := processor()
			if err := l.net.Teardown(p.ID); err != nil {
				return err
			}
			spent += processor() - before
		}
		return nil
	})
	b.ReportMetric(float64(spent.Microseconds())/1000/float64(b.N), "cpu-ms/op")
}

// processor is what this process has used of the CPU.
func processor() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
