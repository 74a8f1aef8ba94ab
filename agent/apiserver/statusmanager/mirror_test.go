package statusmanager_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tinylet/tinylet/agent/pod"
)

func TestMirrorPod(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		s := staticPod("s", "h")
		l.nodeUID = ""
		l.set(s, running())
		l.start()
		after(time.Hour)
		l.wants(0) // no node yet
		l.with(func() { l.nodeUID = "node-uid" })
		after(time.Minute)
		l.wants(0, "create s", "patch s")
		m := l.get("s")
		if o := m.OwnerReferences; len(o) != 1 || o[0].UID != "node-uid" || m.Spec.NodeName != "node" ||
			m.Annotations[pod.AnnotationMirror] != "h" || m.Status.Phase != v1.PodRunning || m.UID == s.UID {
			t.Errorf("mirror pod %v", m)
		}
		l.set(s, restarted(1))
		after(time.Minute)
		l.wants(2, "patch s")
		l.start()
		after(24 * time.Hour)
		l.wants(3)
	})
}

func TestMirrorPodIsMadeAnew(t *testing.T) {
	for name, row := range map[string]struct {
		change func(l *lab, m *v1.Pod)
		want   []string
	}{
		"its hash differs":    {func(l *lab, _ *v1.Pod) { l.unset(staticPod("s", "h")); l.set(staticPod("s", "h2"), running()) }, []string{"delete s", "create s", "patch s"}},
		"somebody deletes it": {func(l *lab, m *v1.Pod) { l.put(deleted(m)) }, []string{"delete s", "create s", "patch s"}},
		"somebody deleted it": {func(l *lab, _ *v1.Pod) { l.drop("s") }, []string{"create s", "patch s"}},
		"it was over and runs again": {func(l *lab, m *v1.Pod) {
			q := m.DeepCopy()
			q.Status.Phase = v1.PodFailed
			l.put(q)
		}, []string{"delete s", "create s", "patch s"}},
	} {
		t.Run(name, func(t *testing.T) {
			inLab(t, func(t *testing.T, l *lab) {
				s := staticPod("s", "h")
				l.set(s, running())
				l.start()
				after(time.Minute)
				l.wants(0, "create s", "patch s")
				m := l.get("s")
				row.change(l, m)
				after(5 * time.Minute)
				l.wants(2, row.want...)
				if fresh := l.get("s"); fresh == nil || fresh.UID == m.UID || fresh.Status.Phase != v1.PodRunning {
					t.Errorf("mirror pod %v", fresh)
				}
				after(24 * time.Hour)
				l.wants(2, row.want...)
			})
		})
	}
}

func TestStaticPodThatIsGone(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		s := staticPod("s", "h")
		l.set(s, running())
		l.start()
		after(time.Minute)
		l.stop()
		l.unset(s)
		l.start()
		after(time.Hour)
		l.wants(2) // the agent starts, and its sources have not spoken
		l.with(func() { l.gone = true })
		after(time.Hour)
		l.wants(2, "delete s")
		if l.get("s") != nil {
			t.Error("the mirror pod is still there")
		}
	})
}

// TestStaleSets delivers each set a second late, after the server has changed.
func TestStaleSets(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		s := staticPod("s", "h")
		l.start()
		l.watch(func(set []*v1.Pod) {
			time.AfterFunc(time.Second, func() { l.reporter.SetPods(set) })
		})
		l.set(s, running())
		after(10 * time.Minute)
		l.wants(0, "create s", "patch s")
		l.put(deleted(l.get("s")))
		after(10 * time.Minute)
		l.wants(2, "delete s", "create s", "patch s")
	})
}

// TestCreatedAndDeletedUnseen covers a mirror pod that no set contains.
func TestCreatedAndDeletedUnseen(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		l.set(staticPod("s", "h"), running())
		l.start()
		l.watch(nil)
		after(time.Minute)
		l.wants(0, "create s", "patch s")
		l.drop("s")
		l.reporter.SetPods(nil)
		after(30 * time.Second)
		l.wants(2)
		after(time.Minute)
		l.wants(2, "create s", "patch s")
	})
}

func TestMirrorPodThatMayNotBe(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		s := staticPod("s", "h")
		s.Spec.ServiceAccountName = "default"
		l.set(s, running())
		l.start()
		for n := range 100 {
			l.set(s, restarted(n))
			after(time.Minute)
		}
		l.wants(0)
		if n := l.log.count("must not reference serviceaccounts"); n != 1 {
			t.Errorf("said %d times", n)
		}
	})
}

func TestNamespaceThatIsMissing(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		s := staticPod("s", "h")
		s.Namespace = "later"
		l.before(func(context.Context, call) error {
			return apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "later")
		})
		l.set(s, running())
		l.start()
		after(24 * time.Hour)
		if n := l.count(); n > 24*3600/150+20 {
			t.Errorf("%d requests in a day", n)
		}
		if n := l.log.count("level=WARN"); n != 1 {
			t.Errorf("said %d times", n)
		}
		l.before(nil)
		after(6 * time.Minute)
		l.has("s", mirrored(running()))
	})
}

// mirrored returns a static pod's status as in its mirror pod.
func mirrored(s *v1.PodStatus) *v1.PodStatus { return s }

// TestTwoStaticPodsOfAName covers a changed manifest: the old pod terminates while
// the new one waits for it.
func TestTwoStaticPodsOfAName(t *testing.T) {
	for _, newFirst := range []bool{true, false} {
		inLab(t, func(t *testing.T, l *lab) {
			old, fresh := staticPod("s", "old"), staticPod("s", "new")
			old.Annotations[pod.AnnotationFirstSeen] = "2026-03-01T12:00:00.5Z"
			fresh.Annotations[pod.AnnotationFirstSeen] = "2026-03-01T12:00:01Z"
			waiting := &v1.PodStatus{Phase: v1.PodPending, QOSClass: v1.PodQOSBestEffort, StartTime: &hour}
			if newFirst {
				l.set(fresh, waiting)
			}
			l.set(old, over())
			l.set(fresh, waiting)
			l.start()
			after(time.Minute)
			l.set(old, restarted(4))
			after(time.Minute)
			l.wants(0, "create s", "patch s")
			if m := l.get("s"); m.Annotations[pod.AnnotationMirror] != "new" || m.Status.Phase != v1.PodPending {
				t.Errorf("mirror pod %v", m)
			}
		})
	}
}

// TestPodOfTheAPIWithAStaticPodsName checks that such a pod is left alone.
func TestPodOfTheAPIWithAStaticPodsName(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		l.put(apiPod("s"))
		l.set(staticPod("s", "h"), running())
		l.start()
		after(24 * time.Hour)
		l.wants(0)
	})
}

// TestMirrorPodOfAnotherNode covers a name that the API has for another node.
func TestMirrorPodOfAnotherNode(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		l.set(staticPod("s", "h"), running())
		l.before(func(_ context.Context, c call) error {
			if c.Verb == "create" {
				return apierrors.NewAlreadyExists(podsResource, "s")
			}
			return apierrors.NewForbidden(podsResource, "s", nil)
		})
		l.start()
		after(24 * time.Hour)
		if n := l.count(); n > 2*(24*3600/150+20) {
			t.Errorf("%d requests in a day", n)
		}
		if n := l.log.count("level=WARN"); n != 1 {
			t.Errorf("said %d times", n)
		}
	})
}

// TestHeldMirrorPod covers a mirror pod that a finalizer holds: attempts become
// rare.
func TestHeldMirrorPod(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		l.set(staticPod("s", "h"), running())
		l.start()
		after(time.Minute)
		m := deleted(l.get("s"))
		m.Finalizers = []string{"example.com/hold"}
		l.put(m)
		n := l.count()
		after(time.Hour)
		if got := l.count() - n; got > 90 {
			t.Errorf("%d requests in an hour", got)
		}
		l.drop("s")
		after(6 * time.Minute)
		synctest.Wait()
		if m := l.get("s"); m == nil || len(m.Finalizers) > 0 || m.Status.Phase != v1.PodRunning {
			t.Errorf("mirror pod %v", m)
		}
	})
}
