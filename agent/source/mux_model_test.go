package source_test

import (
	"context"
	"log/slog"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/pod/event"
	"github.com/tinylet/tinylet/agent/source"
)

// model is a consumer of a Mux that checks the Mux's contract.
type model struct {
	t     *testing.T
	live  map[types.UID]*v1.Pod
	owner map[types.UID]string
	given map[string][]*v1.Pod
}

// receive applies an update. added says that the same Set brought pods
// already.
func (m *model) receive(u source.Update, added *bool) {
	m.t.Helper()
	if u.Op == source.REMOVE && *added {
		m.t.Errorf("%s after what adds", text(u))
	}
	*added = *added || u.Op != source.REMOVE
	for _, p := range u.Pods {
		old := m.live[p.UID]
		switch u.Op {
		case source.ADD:
			if old != nil {
				m.t.Errorf("%s adds the live pod %s", text(u), p.UID)
			}
			m.add(u, p)
		case source.UPDATE, source.RECONCILE, source.DELETE:
			if old == nil || pod.RefOf(old) != pod.RefOf(p) {
				m.t.Errorf("%s of a pod that is not live: %s", text(u), p.UID)
			}
			m.live[p.UID], m.owner[p.UID] = p, u.Source
		case source.REMOVE:
			m.remove(u, p)
		case source.RESTORE:
			m.t.Errorf("%s, which no source gave", text(u))
		}
	}
}

func (m *model) add(u source.Update, p *v1.Pod) {
	m.t.Helper()
	for _, other := range m.live {
		if pod.RefOf(other).FullName() == pod.RefOf(p).FullName() {
			m.t.Errorf("%s adds a second pod of the name %s", text(u), p.Name)
		}
	}
	m.live[p.UID], m.owner[p.UID] = p, u.Source
}

func (m *model) remove(u source.Update, p *v1.Pod) {
	m.t.Helper()
	if m.live[p.UID] != p {
		m.t.Errorf("%s removes what is not live: %s", text(u), p.UID)
	}
	for _, g := range m.given[m.owner[p.UID]] {
		if g.UID == p.UID && g.Name == p.Name {
			m.t.Errorf("%s removes %s, which %s wants", text(u), p.UID, m.owner[p.UID])
		}
	}
	delete(m.live, p.UID)
	delete(m.owner, p.UID)
}

// settled sees that the live pods are what the sources want, and that
// whatever is wanted and not live has a live pod in its way.
func (m *model) settled() {
	m.t.Helper()
	for uid, p := range m.live {
		if !slices.ContainsFunc(m.given[m.owner[uid]], func(g *v1.Pod) bool {
			return g.UID == uid && g.Name == p.Name && g.Spec.Containers[0].Image == p.Spec.Containers[0].Image
		}) {
			m.t.Errorf("pod %s is not what %s wants", uid, m.owner[uid])
		}
	}
	for from, pods := range m.given {
		for _, g := range pods {
			inWay := m.live[g.UID] != nil
			for _, p := range m.live {
				inWay = inWay || p.Name == g.Name
			}
			if !inWay {
				m.t.Errorf("pod %s of %s is not live", g.UID, from)
			}
		}
	}
}

// FuzzMux plays any sequence of sets of three sources, some cut short, to a
// consumer that checks each update.
//
// Each set is a byte with the source, how many updates are received before
// the Set's context ends (3: all) and how many pods, and a byte for each pod
// with its name, UID and tag.
func FuzzMux(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("\xffabcdefghijklmnopqrstuvwxyz0123456789\x00\x11\x22\x33\x44\x55\x66\x77\x88\x99\xaa\xbb\xcc\xdd\xee"))
	f.Add([]byte("\x1c\x00\x1d\x11\x1c\x01\x1d\x12\x1c"))
	names := []string{"a", "b", "c", "d"}
	sources := []string{"file", "http", "api", "file"}
	f.Fuzz(func(t *testing.T, data []byte) {
		synctest.Test(t, func(t *testing.T) {
			mux := source.NewMux(event.NewRecorder(slog.New(slog.DiscardHandler)))
			m := &model{t: t, live: map[types.UID]*v1.Pod{}, owner: map[types.UID]string{}, given: map[string][]*v1.Pod{}}
			for len(data) > 0 {
				head := data[0]
				from, most, count := sources[head&3], int(head>>2&3), min(int(head>>4&3), len(data)-1)
				pods := make([]*v1.Pod, 0, count)
				for _, b := range data[1 : 1+count] {
					pods = append(pods, newPod(names[b&3], types.UID(strconv.Itoa(int(b>>2&7))), strconv.Itoa(int(b>>5&1))))
				}
				data = data[1+count:]
				m.play(mux, from, pods, most)
			}
			for _, from := range sources {
				m.play(mux, from, m.given[from], 3)
			}
			m.settled()
		})
	})
}

// play hands one set over and receives all updates, or at most so many.
func (m *model) play(mux *source.Mux, from string, pods []*v1.Pod, most int) {
	m.t.Helper()
	ctx, cancel := context.WithCancel(m.t.Context())
	defer cancel()
	done := make(chan struct{})
	m.given[from] = pods
	go func() {
		defer close(done)
		mux.Set(ctx, from, source.PodSet{Pods: pods})
	}()
	added := false
	for n := 0; ; n++ {
		synctest.Wait() // Set waits for its consumer or is done
		if most < 3 && n == most {
			cancel()
			<-done
			return
		}
		select {
		case u := <-mux.Updates():
			m.receive(u, &added)
		case <-done:
			return
		}
	}
}
