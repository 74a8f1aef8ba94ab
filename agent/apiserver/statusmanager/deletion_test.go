package statusmanager_test

import (
	"context"
	"errors"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

func TestDeletion(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		p := l.put(apiPod("p"))
		l.start()
		l.set(p, running())
		after(time.Minute)
		d := l.put(deleted(l.get("p")))
		l.with(func() { l.done["another"] = true })
		l.set(d, over())
		after(time.Minute)
		l.wants(0, "patch p", "patch p") // its volumes are still there
		l.with(func() { l.done[p.UID] = true })
		after(time.Minute)
		l.wants(2, "delete p")
		l.unset(d)
		after(24 * time.Hour)
		l.wants(2, "delete p")
	})
}

// TestServerThatDoesNotKnowYet answers NotFound for an existing pod, as an API
// server may in its first second.
func TestServerThatDoesNotKnowYet(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		p := l.put(deleted(l.put(apiPod("p"))))
		l.start()
		l.before(func(_ context.Context, c call) error {
			if c.Verb == "delete" {
				return apierrors.NewNotFound(podsResource, "p")
			}
			return nil
		})
		l.with(func() { l.done[p.UID] = true })
		l.set(p, over())
		after(time.Second)
		l.wants(0, "patch p", "delete p")
		l.before(nil)
		after(2 * time.Second)
		l.wants(2)
		after(20 * time.Second)
		l.wants(2, "delete p")
		after(24 * time.Hour)
		l.wants(3)
	})
}

// TestWatchThatIsLate keeps a pod in the pod source long after its deletion.
func TestWatchThatIsLate(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		p := l.put(deleted(l.put(apiPod("p"))))
		l.start()
		l.before(func(_ context.Context, c call) error {
			if c.Verb == "delete" {
				return apierrors.NewNotFound(podsResource, "p")
			}
			return nil
		})
		l.with(func() { l.done[p.UID] = true })
		l.set(p, over())
		after(24 * time.Hour)
		if n := l.count(); n > 2+24*60/2 {
			t.Errorf("%d requests in a day", n)
		}
	})
}

func TestLastStatusGoesFirst(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		p := l.put(deleted(l.put(apiPod("p"))))
		l.start()
		l.before(func(_ context.Context, c call) error {
			if c.Verb == "patch" && len(l.since(0)) < 3 {
				return errors.New("no answer")
			}
			return nil
		})
		l.with(func() { l.done[p.UID] = true })
		l.set(p, over())
		after(time.Minute)
		l.wants(0, "patch p", "patch p", "patch p", "delete p")
	})
}

// TestEndOfAPodThatNeverRan checks that the pod gets a terminal phase, for which
// controllers wait.
func TestEndOfAPodThatNeverRan(t *testing.T) {
	for _, known := range []bool{true, false} {
		inLab(t, func(t *testing.T, l *lab) {
			p := l.put(deleted(l.put(apiPod("p"))))
			var phase v1.PodPhase
			l.keeps(func(s *v1.PodStatus) { phase = s.Phase })
			l.start()
			if known {
				s := p.Status
				l.set(p, &s)
			}
			after(time.Minute)
			l.wants(0)
			l.with(func() { l.done[p.UID] = true })
			after(time.Minute)
			l.wants(0, "patch p", "delete p")
			if phase != v1.PodFailed {
				t.Errorf("known %t: phase %q", known, phase)
			}
		})
	}
}

// TestEndThatCannotBeTold covers a status that must not be sent: the pod is deleted
// anyway.
func TestEndThatCannotBeTold(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		q := apiPod("p")
		q.Status = *over()
		q.Status.Phase = v1.PodRunning
		p := l.put(deleted(l.put(q)))
		l.start()
		l.with(func() { l.done[p.UID] = true })
		l.set(p, running())
		after(time.Minute)
		l.wants(0, "patch p", "delete p")
	})
}

func TestDeletedByForce(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		p := l.put(apiPod("p"))
		l.start()
		l.set(p, running())
		after(time.Minute)
		l.drop("p")
		l.set(p, restarted(1))
		after(time.Minute)
		l.set(p, over())
		l.with(func() { l.done[p.UID] = true })
		after(24 * time.Hour)
		l.wants(1)
	})
}

func TestDeletionOfAnother(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		q := apiPod("p")
		q.Status = *over()
		p := l.put(deleted(l.put(q)))
		l.start()
		l.watch(nil)
		l.set(p, over())
		after(time.Minute)
		l.drop("p")
		other := l.put(apiPod("p"))
		l.with(func() { l.done[p.UID] = true })
		after(time.Minute)
		l.wants(0, "delete p")
		if got := l.get("p"); got == nil || got.UID != other.UID {
			t.Errorf("the other pod of the name is %v", got)
		}
	})
}

func TestFinalizers(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		q := apiPod("p")
		q.Status, q.Finalizers = *over(), []string{"batch.kubernetes.io/job-tracking"}
		p := l.put(deleted(l.put(q)))
		l.start()
		l.set(p, over())
		l.with(func() { l.done[p.UID] = true })
		after(time.Hour)
		if n := l.count(); n > 7 {
			t.Errorf("%d requests in an hour for a pod that others hold", n)
		}
	})
}

// TestDeletedByForceUnseen covers a pod that was deleted before the pod source
// delivered its last version.
func TestDeletedByForceUnseen(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		p := l.put(apiPod("p"))
		l.start()
		l.watch(nil)
		l.set(p, running())
		after(time.Minute)
		l.reporter.SetPods(nil)
		after(time.Second)
		l.set(p, restarted(1))
		after(time.Hour)
		l.wants(0, "patch p")
	})
}

// TestEndInOneRequest covers the terminated state of containers, which is sent
// together with the pod's end, unless that takes long.
func TestEndInOneRequest(t *testing.T) {
	for _, row := range []struct {
		name  string
		takes time.Duration
		want  []string
	}{
		{"at once", 10 * time.Millisecond, []string{"patch p", "delete p"}},
		{"later", 10 * time.Second, []string{"patch p", "patch p", "delete p"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			inLab(t, func(t *testing.T, l *lab) {
				p := l.put(deleted(l.put(apiPod("p"))))
				l.start()
				ended := over()
				ended.Phase = v1.PodRunning // not over before all is taken down
				l.set(p, ended)
				after(row.takes)
				l.with(func() { l.done[p.UID] = true })
				l.set(p, over())
				after(time.Second)
				l.wants(0, row.want...)
			})
		})
	}
}
