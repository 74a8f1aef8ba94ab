package link

import (
	"errors"
	"math"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tinylet/tinylet/net/netns"
)

func TestShape(t *testing.T) {
	h, ns := opened(t)
	if err := h.CreateVeth(Veth{Name: "one", Peer: Peer{Name: "two"}}); err != nil {
		t.Fatal(err)
	}
	one := must(h.Link("one"))(t).Index
	const mega, giga = 1_000_000, 1_000_000_000
	for _, c := range []struct {
		set, want Rate
		tc        []string
	}{
		{Rate{1000, 80_000}, Rate{1000, 80_000}, []string{"tbf", "rate 1Kbit", "burst 10000b"}},
		{Rate{mega, 0}, Rate{mega, 1518 * 8}, []string{"rate 1Mbit", "burst 1518b"}},
		{Rate{10 * mega, 8 * mega}, Rate{10 * mega, 8 * mega}, []string{"rate 10Mbit", "burst 1000000b", "lat 25ms"}},
		{Rate{giga, math.MaxInt32}, Rate{giga, math.MaxInt32 &^ 7}, []string{"rate 1Gbit", "lat 25ms"}},
		{Rate{32 * giga, 800 * mega}, Rate{32 * giga, 800 * mega}, []string{"rate 32Gbit", "lat 25ms"}},
		{Rate{400 * giga, 800 * mega}, Rate{400 * giga, 800 * mega}, []string{"rate 400Gbit", "lat 25ms"}},
		{Rate{5000 * giga, 800 * mega}, Rate{5000 * giga, 800 * mega}, []string{"rate 5Tbit"}},
		{Rate{1, 8}, Rate{8, 1518 * 8}, []string{"rate 8bit"}},
		{Rate{mega, math.MaxUint64}, Rate{mega, math.MaxInt32 * 8}, []string{"rate 1Mbit"}},
	} {
		for range 2 {
			if err := h.Shape(one, c.set); err != nil {
				t.Errorf("%+v: %v", c.set, err)
			}
		}
		if got := must(h.ShapedTo(one))(t); got != c.want {
			t.Errorf("%+v is %+v, want %+v", c.set, got, c.want)
		}
		out := asked(t, ns, "tc", "qdisc", "show", "dev", "one")
		has(t, out, c.tc...)
		if strings.Count(out, "tbf") != 1 {
			t.Errorf("more than one:\n%s", out)
		}
	}
	for range 2 {
		if err := h.Shape(one, Rate{}); err != nil {
			t.Error(err)
		}
	}
	if out := asked(t, ns, "tc", "qdisc", "show", "dev", "one"); strings.Contains(out, "tbf") {
		t.Errorf("it is still there:\n%s", out)
	}
	if got := must(h.ShapedTo(one))(t); got != (Rate{}) {
		t.Errorf("no limit is %+v", got)
	}
}

// Another's qdisc stays until there is a limit.
func TestShapeLeaves(t *testing.T) {
	h, ns := opened(t)
	if err := h.CreateVeth(Veth{Name: "one", Peer: Peer{Name: "two"}}); err != nil {
		t.Fatal(err)
	}
	one := must(h.Link("one"))(t).Index
	asked(t, ns, "tc", "qdisc", "add", "dev", "one", "root", "pfifo")
	if err := h.Shape(one, Rate{}); err != nil {
		t.Error(err)
	}
	has(t, asked(t, ns, "tc", "qdisc", "show", "dev", "one"), "pfifo")
	if err := h.Shape(one, Rate{1e6, 1e6}); err != nil {
		t.Error(err)
	}
	has(t, asked(t, ns, "tc", "qdisc", "show", "dev", "one"), "tbf")
	if err := h.Shape(4242, Rate{1e6, 1e6}); !errors.Is(err, ErrNotFound) {
		t.Errorf("a link that is not there: %v", err)
	}
	if err := h.Shape(one, Rate{0, 8}); err == nil {
		t.Error("a burst without a rate")
	}
	if _, err := h.ShapedTo(4242); !errors.Is(err, ErrNotFound) {
		t.Errorf("a link that is not there: %v", err)
	}
}

// What is sent is held back: 4 MB at 80 Mbit/s, of which 1 MB goes at once,
// take 300 ms.
func TestShapeHoldsBack(t *testing.T) {
	host, inside, hostNS, ns := pod(t)
	must(inside.Configure(usual()))(t)
	if err := host.Shape(must(host.Link("one"))(t).Index, Rate{80e6, 8e6}); err != nil {
		t.Fatal(err)
	}
	listener := listenTCP(t, ns)
	defer listener.Close()
	done := make(chan time.Duration, 1)
	go func() {
		c, err := listener.Accept()
		if err != nil {
			done <- 0
			return
		}
		defer c.Close()
		start, total, buf := time.Now(), 0, make([]byte, 64<<10)
		for total < 4e6 {
			n, err := c.Read(buf)
			if total += n; err != nil {
				done <- 0
				return
			}
		}
		done <- time.Since(start)
	}()
	if err := netns.Do(hostNS, func() error {
		c, err := net.DialTCP("tcp", nil, listener.Addr().(*net.TCPAddr))
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Write(make([]byte, 4e6))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if took := <-done; took < 200*time.Millisecond || took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
}

func listenTCP(t *testing.T, ns *os.File) (l net.Listener) {
	t.Helper()
	if err := netns.Do(ns, func() (err error) {
		l, err = net.Listen("tcp", "10.1.0.7:0")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return l
}

func TestBucketKeepsItsBurst(t *testing.T) {
	for _, rate := range []uint64{1, 8, 1e3, 1e6, 1e9, 32e9, 1e12, 1e15, math.MaxUint64} {
		for _, burst := range []uint64{0, 8, 1e6, 1e9, math.MaxUint64} {
			b := bucketOf(Rate{rate, burst}, 1500)
			want := min(max(burst/8, 1518), maxBurst)
			if b.burst() != want || b.burst() > math.MaxUint32 || b.perSecond == 0 {
				t.Errorf("%d and %d bits: %+v has %d", rate, burst, b, b.burst())
			}
			if again := bucketOf(b.rate(), 1500); again != b {
				t.Errorf("%+v is %+v when it is read and set", b, again)
			}
		}
	}
}
