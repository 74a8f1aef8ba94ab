package source_test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/tinylet/tinylet/agent/apiserver/apiservertest"
	"github.com/tinylet/tinylet/agent/source"
)

// TestAPIWordsOfNoMeaning checks that watch events without effect change
// nothing.
func TestAPIWordsOfNoMeaning(t *testing.T) {
	at := func(p *v1.Pod, version string) *v1.Pod {
		return with(p, func(p *v1.Pod) { p.ResourceVersion = version })
	}
	following(t, func(t *testing.T) *cluster {
		return newCluster(t, apiPod("a", "1", "1"), apiPod("b", "2", "1"))
	}, func(f *followed) {
		f.expect("[a/1=1 b/2=1]")
		f.remove("2")
		f.expect("[a/1=1]")
		f.made()
		for _, e := range []watch.Event{
			{Type: watch.Bookmark, Object: &v1.Pod{}},
			{Type: watch.Bookmark, Object: at(&v1.Pod{}, "0")},
			{Type: watch.Added, Object: at(apiPod("a", "1", "0"), "3")},     // out of date
			{Type: watch.Modified, Object: at(apiPod("a", "1", "0"), "10")}, // a repetition
			{Type: watch.Added, Object: at(apiPod("b", "2", "1"), "9")},     // deleted since
			{Type: watch.Deleted, Object: at(apiPod("c", "5", "1"), "11")},  // never known
		} {
			f.Send(e)
			f.expect()
		}
		if calls := f.made(); len(calls) != 0 {
			t.Errorf("calls %q", calls)
		}
		f.Put(apiPod("a", "1", "2"))
		f.Cut()
		time.Sleep(time.Minute)
		if calls := f.made(); len(calls) != 1 || calls[0] != fmt.Sprint("watch ", 11) {
			t.Errorf("calls %q", calls)
		}
	})
}

// TestAPIDoubt checks how the source continues after each kind of failure.
func TestAPIDoubt(t *testing.T) {
	status := func(code int32) error {
		return fmt.Errorf("watch pods: %w", apierrors.NewGenericServerResponse(int(code), "GET", v1.Resource("pods"), "", "", 0, false))
	}
	tear := watch.Event{Type: watch.Error, Object: &metav1.Status{Code: 500, Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: "ClientWatchDecoding"}}}}}
	once := func(prefix string, err error) func(string) error {
		return func(call string) error {
			if failed := err; failed != nil && strings.HasPrefix(call, prefix) {
				err = nil
				return failed
			}
			return nil
		}
	}
	for _, tt := range []struct {
		name string
		do   func(*followed)
		want []string
	}{
		{"link", func(f *followed) { f.failing(once("watch", io.EOF)); f.Cut() }, []string{"watch 8", "watch 8"}},
		{"overload", func(f *followed) { f.failing(once("watch", status(http.StatusTooManyRequests))); f.Cut() }, []string{"watch 8", "watch 8"}},
		{"no credentials", func(f *followed) { f.failing(once("watch", status(http.StatusUnauthorized))); f.Cut() }, []string{"watch 8", "watch 8"}},
		{"store", func(f *followed) { f.failing(once("watch", status(500))); f.Cut() }, []string{"watch 8", "list 8", "watch 8"}},
		{"bad request", func(f *followed) { f.failing(once("watch", status(400))); f.Cut() }, []string{"watch 8", "list ", "watch 8"}},
		{"expired", func(f *followed) { f.failing(once("watch", expired())); f.Cut() }, []string{"watch 8", "list 8", "watch 8"}},
		{"list expired", func(f *followed) {
			f.failing(func(call string) error {
				if !strings.HasSuffix(call, " 8") || f.count() > 2 {
					return nil
				}
				return expired()
			})
			f.Cut()
		}, []string{"watch 8", "list 8", "list ", "watch 8"}},
		{"list too new", func(f *followed) {
			n := 0
			f.failing(func(string) error {
				if n++; n == 1 {
					return status(500)
				} else if n == 2 {
					return tooLarge()
				}
				return nil
			})
			f.Cut()
		}, []string{"watch 8", "list 8", "list ", "watch 8"}},
		{"torn once", func(f *followed) { f.Cut(tear) }, []string{"watch 8"}},
		{"torn twice", func(f *followed) {
			f.Cut(tear)
			time.Sleep(2 * time.Second)
			f.Cut(tear)
		}, []string{"watch 8", "list ", "watch 8"}},
		{"doubt ends", func(f *followed) {
			f.Send(bookmark(3))
			time.Sleep(2 * time.Second)
			f.failing(once("watch", status(500)))
			f.Cut()
		}, []string{"list ", "watch 8", "watch 8", "list 8", "watch 8"}},
		{"a watch without end", func(f *followed) {
			f.SetFaults(apiservertest.Faults{WatchLimit: -1})
			f.Cut()
			time.Sleep(2 * time.Second)
			f.SetFaults(apiservertest.Faults{})
			// The source ends it by itself, some time between 5 and 11 minutes.
			for begun := time.Now(); f.count() < 2 && time.Since(begun) < 11*time.Minute; {
				time.Sleep(time.Second)
			}
		}, []string{"watch 8", "watch 8"}},
		{"no object", func(f *followed) { f.Send(watch.Event{Type: watch.Modified}) }, []string{"list ", "watch 8"}},
		{"a nil pod", func(f *followed) { f.Send(watch.Event{Type: watch.Modified, Object: (*v1.Pod)(nil)}) }, []string{"list ", "watch 8"}},
		{"an unknown type", func(f *followed) { f.Send(watch.Event{Type: "NEWS", Object: apiPod("a", "1", "1")}) }, []string{"list ", "watch 8"}},
		{"an error without status", func(f *followed) { f.Send(watch.Event{Type: watch.Error}) }, []string{"list ", "watch 8"}},
		{"a pod as an error", func(f *followed) { f.Send(watch.Event{Type: watch.Error, Object: apiPod("a", "1", "1")}) }, []string{"list ", "watch 8"}},
		{"a bookmark of the past", func(f *followed) { f.Send(bookmark(3)) }, []string{"list ", "watch 8"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			following(t, func(t *testing.T) *cluster { return newCluster(t, apiPod("a", "1", "1")) }, func(f *followed) {
				time.Sleep(time.Minute)
				f.made()
				tt.do(f)
				time.Sleep(time.Minute)
				if diff := cmp.Diff(tt.want, f.made()); diff != "" {
					t.Errorf("calls (-want +got):\n%s", diff)
				}
				f.expect("[a/1=1]")
				if n := f.Watches(); n != 1 {
					t.Errorf("%d watches are open", n)
				}
			})
		})
	}
}

// TestAPIServerSetBack covers an API server whose store was restored from an
// old backup: watches from a future version block silently.
func TestAPIServerSetBack(t *testing.T) {
	following(t, func(t *testing.T) *cluster { return newCluster(t, apiPod("a", "1", "1")) }, func(f *followed) {
		for i := range 50 {
			f.Put(apiPod("a", "1", fmt.Sprint(i)))
		}
		f.taken()
		f.Restore(9, with(apiPod("a", "1", "old"), func(p *v1.Pod) { p.ResourceVersion = "9" }))
		f.SetFaults(apiservertest.Faults{NoBookmarks: true})
		f.Cut()
		time.Sleep(15 * time.Minute)
		f.expect("[a/1=old]")
		f.Put(apiPod("a", "1", "new"))
		f.expect("[a/1=new]")
	})
}

func TestAPIRefusesPods(t *testing.T) {
	bad := map[string]func(*v1.Pod){
		"UID is not a valid":  func(p *v1.Pod) { p.UID = "../../etc" },
		"its UID is":          func(p *v1.Pod) { p.UID = "" },
		"its name is invalid": func(p *v1.Pod) { p.Name = "../x" },
		"its namespace is":    func(p *v1.Pod) { p.Namespace = "a/b" },
		"are too long":        func(p *v1.Pod) { p.Name = strings.Repeat("a", 253) },
		"container name":      func(p *v1.Pod) { p.Spec.Containers[0].Name = "/" },
		"no containers":       func(p *v1.Pod) { p.Spec.Containers = nil },
		"duplicate container": func(p *v1.Pod) { p.Spec.InitContainers = p.Spec.Containers },
		"volume name \"..\"":  func(p *v1.Pod) { p.Spec.Volumes = []v1.Volume{{Name: ".."}} },
	}
	for want, change := range bad {
		t.Run(want, func(t *testing.T) {
			refused := with(apiPod("b", "2", "1"), change)
			following(t, func(t *testing.T) *cluster { return newCluster(t, apiPod("a", "1", "1")) }, func(f *followed) {
				f.expect("[a/1=1]")
				refused.ResourceVersion = "9"
				f.Send(watch.Event{Type: watch.Added, Object: refused.DeepCopy()})
				f.expect()
				f.wantEvent(want)
				// In a list, too, and not of one that is known.
				good := with(apiPod("a", "1", "1"), func(p *v1.Pod) { p.ResourceVersion = "8" })
				f.Restore(10, good, refused)
				f.Cut()
				time.Sleep(time.Minute)
				f.expect()
				worse := with(apiPod("a", "1", "2"), change)
				if worse.ResourceVersion = "9"; worse.UID != "1" {
					worse = good
				}
				f.Restore(11, worse)
				f.Cut()
				time.Sleep(time.Minute)
				f.expect()
				f.Put(apiPod("a", "1", "3"))
				f.expect("[a/1=3]")
			})
		})
	}
	following(t, func(t *testing.T) *cluster { return newCluster(t, apiPod("a", "1", "1")) }, func(f *followed) {
		f.expect("[a/1=1]")
		f.Send(watch.Event{Type: watch.Modified, Object: with(apiPod("c", "1", "1"), func(p *v1.Pod) { p.ResourceVersion = "9" })})
		f.expect()
		f.wantEvent("pod default/a has the same UID")
	})
}

// TestManyRejectedPods has more rejected pods in a list than get their own event.
func TestManyRejectedPods(t *testing.T) {
	following(t, func(t *testing.T) *cluster {
		pods := []*v1.Pod{apiPod("good", "good", "1")}
		for i := range 22 {
			pods = append(pods, with(apiPod(fmt.Sprintf("bad-%d", i), fmt.Sprint(i), "1"), func(p *v1.Pod) { p.Spec.Containers[0].Name = "../x" }))
		}
		return newCluster(t, pods...)
	}, func(f *followed) {
		f.expect("[good/good=1]")
		all := warnings(f.events)
		if want := "2 more pods of the API server are rejected"; len(all) != 21 || !strings.Contains(all[20], want) {
			f.t.Errorf("%d events, the last is %q; want 21 and %q", len(all), all[len(all)-1], want)
		}
	})
}

func (f *followed) wantEvent(text string) {
	f.t.Helper()
	all := warnings(f.events)
	if len(all) != 1 || !strings.HasPrefix(all[0], "RefusedPod: ") || !strings.Contains(all[0], text) {
		f.t.Errorf("events %q, want one with %q", all, text)
	}
}

// FuzzAPI sends arbitrary events. Desired pods must have names that are safe as
// paths, no pod may occur twice, and a desired pod may disappear only by an
// event or a list that deletes it.
func FuzzAPI(f *testing.F) {
	f.Add([]byte("\x00\x01\x02\x13\x24\x35\x46\x57"))
	f.Add([]byte("aAbBcCdDeE"))
	f.Fuzz(func(t *testing.T, script []byte) {
		if len(script) > 200 {
			return
		}
		following(t, func(t *testing.T) *cluster { return newCluster(t, apiPod("a", "1", "1")) }, func(f *followed) {
			uids := []types.UID{"1", "2", "3", "../x", ""}
			names := []string{"a", "b", "", "..", "c"}
			kinds := []watch.EventType{watch.Added, watch.Modified, watch.Deleted, watch.Bookmark, watch.Error, "x"}
			want := map[types.UID]bool{"1": true}
			for i, b := range script {
				p := apiPod(names[int(b>>3)%len(names)], string(uids[int(b)%len(uids)]), fmt.Sprint(i))
				p.ResourceVersion = fmt.Sprint(int(b)%7 + i)
				kind := kinds[int(b>>2)%len(kinds)]
				f.Send(watch.Event{Type: kind, Object: p})
				if kind == watch.Deleted {
					delete(want, p.UID)
				}
			}
			time.Sleep(time.Minute)
			f.taken()
			seen := map[types.UID]bool{}
			for _, p := range f.last {
				if !slices.Contains(names[:2], p.Name) && p.Name != "c" || !slices.Contains(uids[:3], p.UID) || seen[p.UID] {
					t.Errorf("pod %q with UID %q", p.Name, p.UID)
				}
				seen[p.UID] = true
			}
			for uid := range want {
				if !seen[uid] {
					t.Errorf("pod %s is gone", uid)
				}
			}
		})
	})
}

// TestAPIRecovery lets another component observe first that the API server is
// reachable again.
func TestAPIRecovery(t *testing.T) {
	back := make(chan struct{})
	recovered := func() <-chan struct{} {
		select {
		case <-back:
			return nil
		default:
			return back
		}
	}
	followingWith(t, func(c *source.APIConfig) {
		back = make(chan struct{}) // of the bubble
		c.Recovered = recovered
	}, func(t *testing.T) *cluster { return newCluster(t, apiPod("a", "1", "1")) }, func(f *followed) {
		f.expect("[a/1=1]")
		f.failing(func(string) error { return io.EOF })
		f.Cut()
		time.Sleep(time.Hour)
		f.failing(nil)
		f.Put(apiPod("a", "1", "2"))
		f.made()
		close(back)
		time.Sleep(time.Second)
		f.expect("[a/1=2]")
		if calls := f.made(); len(calls) != 1 {
			t.Errorf("calls %q", calls)
		}
	})
}
