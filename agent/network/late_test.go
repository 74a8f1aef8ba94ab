package network

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tinylet/tinylet/agent/config"
	"github.com/tinylet/tinylet/net/cni"
)

// direct returns Direct of the file.
func (l *lab) direct(t *testing.T) []netip.Prefix {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(l.folder, FileName))
	if err != nil {
		t.Fatal(err)
	}
	c, err := cni.ParseConflist(data)
	if err != nil {
		t.Fatal(err)
	}
	return c.Direct
}

// writes returns how often the log reports a write of the file.
func (l *lab) writes() int { return strings.Count(l.log.String(), "wrote network configuration") }

func routed(c *Config) {
	c.Settings.Mode = config.NetworkRouted
	if c.Networks == nil {
		c.Networks = []netip.Prefix{netip.MustParsePrefix("10.1.0.0/24")}
	}
}

// TestNodesChangeAllTheTime: the rules follow at once, and the file once a minute.
func TestNodesChangeAllTheTime(t *testing.T) {
	nodes := []netip.Prefix{netip.MustParsePrefix("10.2.0.0/24"), netip.MustParsePrefix("10.3.0.0/24")}
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, routed)
		l.run(t, func() {
			// The first of them must not wait: others start pods meanwhile.
			l.Direct(nodes)
			time.Sleep(minSyncInterval)
			synctest.Wait()
			if got := l.direct(t); !slices.Equal(got, nodes) || l.writes() != 2 {
				t.Errorf("the file has %v, written %d times", got, l.writes())
			}
			const minutes = 10
			for i := range minutes * 60 {
				now := nodes[:i%2+1]
				l.Direct(now)
				time.Sleep(time.Second)
				synctest.Wait()
				if last := l.shelf.made[len(l.shelf.made)-1]; !slices.Equal(last.Direct, now) {
					t.Fatalf("after %d s the rules have %v, want %v", i, last.Direct, now)
				}
			}
			if n := l.writes() - 2; n < minutes-1 || n > minutes {
				t.Errorf("written %d times in %d minutes", n, minutes)
			}
			l.Direct(nodes[1:])
			time.Sleep(directWriteInterval + minSyncInterval)
			synctest.Wait()
			if got := l.direct(t); !slices.Equal(got, nodes[1:]) {
				t.Errorf("a minute after the last change the file has %v", got)
			}
			written, looked := l.writes(), l.shelf.looks()
			time.Sleep(resyncInterval - 2*directWriteInterval)
			synctest.Wait()
			if l.writes() != written || l.shelf.looks() > looked+1 {
				t.Errorf("nothing changes: written %d times, looked %d times", l.writes()-written, l.shelf.looks()-looked)
			}
		})
	})
}

// TestLateIsNotLost: a pending configuration is written when something else changes
// and when the agent ends.
func TestLateIsNotLost(t *testing.T) {
	nodes := []netip.Prefix{netip.MustParsePrefix("10.2.0.0/24"), netip.MustParsePrefix("10.3.0.0/24"), netip.MustParsePrefix("10.4.0.0/24")}
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, func(c *Config) { routed(c); c.Networks = nil })
		l.Assigned([]string{"10.1.0.0/24"})
		tell := func(n int) {
			l.Direct(nodes[:n])
			time.Sleep(minSyncInterval)
			synctest.Wait()
		}
		l.run(t, func() {
			tell(1)
			tell(2)
			if got := l.direct(t); len(got) != 1 {
				t.Errorf("at once the file has %v", got)
			}
			l.Assigned([]string{"10.9.0.0/24"})
			l.resync()
			if got := l.written(t); len(l.direct(t)) != 2 || got != "pods0 10.9.0.0/24" {
				t.Errorf("of another network: %s, %v", got, l.direct(t))
			}
			tell(3)
			if got := l.direct(t); len(got) != 2 {
				t.Errorf("a while later the file has %v", got)
			}
		})
		if got := l.direct(t); len(got) != 3 {
			t.Errorf("after the end the file has %v", got)
		}
	})
}

// TestLateFails: the rules fail while a pending configuration is overdue.
func TestLateFails(t *testing.T) {
	nodes := []netip.Prefix{netip.MustParsePrefix("10.2.0.0/24"), netip.MustParsePrefix("10.3.0.0/24")}
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, routed)
		l.run(t, func() {
			for n := range nodes {
				l.Direct(nodes[:n+1])
				time.Sleep(minSyncInterval)
				synctest.Wait()
			}
			l.shelf.mu.Lock()
			l.shelf.fail = os.ErrInvalid
			l.shelf.mu.Unlock()
			l.resync()
			looked := l.shelf.looks()
			time.Sleep(5 * time.Minute)
			synctest.Wait()
			if n := l.shelf.looks() - looked; n > 30 {
				t.Errorf("looked %d times in 5 minutes", n)
			}
		})
	})
}
