package statusmanager_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tinylet/tinylet/agent/apiserver/statusmanager"
)

// has checks that the server has a status.
func (l *lab) has(name string, want *v1.PodStatus) {
	l.t.Helper()
	synctest.Wait()
	p := l.get(name)
	if p == nil {
		l.t.Errorf("no pod %s", name)
		return
	}
	if want, got := ordered(want), ordered(&p.Status); !equality.Semantic.DeepEqual(want, got) {
		l.t.Errorf("status of %s (-want +got):\n%s", name, cmp.Diff(want, got))
	}
}

func TestStatusIsSentOnce(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		p := l.put(apiPod("p"))
		l.start()
		after(time.Second)
		l.wants(0) // the agent does not know it yet
		l.set(p, running())
		after(time.Second)
		l.wants(0, "patch p")
		l.has("p", running())
		l.set(p, running())
		l.start() // everything is known anew
		after(24 * time.Hour)
		l.wants(0, "patch p")
		if got := l.since(0)[0].Patch; strings.Contains(got, "PodScheduled") || strings.Contains(got, "qosClass") {
			t.Errorf("the patch tells what the server has: %s", got)
		}
	})
}

func TestNothingBeforeTheFirstSet(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		l.set(staticPod("s", "h"), running())
		l.quiet = true
		l.start()
		l.with(func() { l.gone = true })
		after(24 * time.Hour)
		l.wants(0)
		l.reporter.SetPods(nil)
		after(time.Minute)
		l.wants(0, "create s", "patch s")
	})
}

func TestWatchThatLags(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		p := l.put(apiPod("p"))
		l.start()
		l.watch(nil)
		l.set(p, running())
		after(time.Second)
		l.reporter.SetPods([]*v1.Pod{p}) // what it was before the patch
		after(time.Second)
		l.wants(0, "patch p")
		l.set(p, restarted(1))
		after(time.Hour)
		l.wants(0, "patch p", "patch p")
		if got := l.since(1)[0].Patch; strings.Contains(got, "phase") {
			t.Errorf("the second patch repeats the first: %s", got)
		}
	})
}

func TestConditionsOfOthersStay(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		p := l.put(apiPod("p"))
		l.start()
		l.watch(nil)
		q := p.DeepCopy()
		gate := v1.PodCondition{Type: "example.com/gate", Status: "True", LastTransitionTime: hour}
		q.Status.Conditions = append(q.Status.Conditions, gate)
		l.put(q)
		l.set(p, running())
		after(time.Second)
		want := running()
		want.Conditions = append(want.Conditions, gate)
		l.has("p", want)
	})
}

func TestThousandsOfChanges(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		l.latency(100 * time.Millisecond)
		var pods []*v1.Pod
		for i := range 20 {
			pods = append(pods, l.put(apiPod(fmt.Sprint("p", i))))
		}
		l.start()
		for n := range 150 {
			for _, p := range pods {
				l.set(p, restarted(n))
			}
			after(time.Millisecond)
		}
		after(time.Second * 2)
		if n := l.count(); n > 60 {
			t.Errorf("%d requests for 3000 changes", n)
		}
		for _, p := range pods {
			l.has(p.Name, restarted(149))
		}
		if _, most := l.InFlight(); most != 4 {
			t.Errorf("%d requests at once", most)
		}
	})
}

func TestCoalesce(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		p := l.put(apiPod("p"))
		l.start(func(c *statusmanager.Config) { c.Coalesce = 10 * time.Second })
		l.set(p, restarted(0))
		after(time.Second)
		l.wants(0, "patch p") // the phase
		for n := range 5 {
			l.set(p, restarted(n))
			after(time.Second)
		}
		l.wants(1)
		after(7 * time.Second)
		l.wants(1, "patch p")
		l.has("p", restarted(4))
		l.set(p, restarted(5))
		after(time.Second)
		unready := restarted(6)
		unready.Conditions[1].Status = "False"
		l.set(p, unready)
		after(time.Second)
		l.wants(2, "patch p")
		after(time.Minute)
		l.wants(2, "patch p")
		l.put(deleted(l.get("p")))
		s := unready.DeepCopy()
		s.Message = "m"
		l.set(p, s)
		after(time.Second)
		l.wants(3, "patch p") // its end is waited for
	})
}

func TestAnotherPodOfTheName(t *testing.T) {
	for name, answer := range map[string]error{
		"invalid":  nil, // the server's own
		"conflict": apierrors.NewConflict(podsResource, "p", nil),
	} {
		t.Run(name, func(t *testing.T) {
			inLab(t, func(t *testing.T, l *lab) {
				p := l.put(apiPod("p"))
				l.start()
				l.watch(nil)
				after(time.Second)
				l.drop("p")
				other := l.put(apiPod("p"))
				l.before(func(_ context.Context, c call) error {
					if c.Verb == "patch" {
						return answer
					}
					return nil
				})
				l.set(p, running())
				after(time.Minute)
				l.wants(0, "patch p", "get p")
				l.has("p", &other.Status)
				if n := l.log.count("level=WARN"); n != 0 {
					t.Errorf("another pod of the name is no refusal: %s", l.log.buf.String())
				}
				l.before(nil)
				l.watch(l.reporter.SetPods)
				after(time.Minute)
				l.wants(2)
				l.set(other, running())
				after(time.Minute)
				l.wants(2, "patch p")
				l.has("p", running())
			})
		})
	}
}

func TestPodThatIsGone(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		p := l.put(apiPod("p"))
		l.start()
		l.watch(nil)
		after(time.Second)
		l.drop("p")
		l.set(p, running())
		after(time.Minute)
		l.set(p, restarted(1))
		after(time.Minute)
		l.wants(0, "patch p")
		l.reporter.SetPods(nil)
		after(24 * time.Hour)
		l.wants(0, "patch p")
	})
}

func TestResync(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		p := l.put(apiPod("p"))
		l.start()
		l.before(func(context.Context, call) error { return apierrors.NewNotFound(podsResource, "p") }) // it is wrong
		l.set(p, running())
		after(time.Minute)
		l.wants(0, "patch p")
		l.before(nil)
		after(8 * time.Minute)
		l.wants(0, "patch p")
		after(3 * time.Minute)
		l.wants(0, "patch p", "patch p")
		l.has("p", running())
		l.before(func(context.Context, call) error { return apierrors.NewNotFound(podsResource, "p") })
		l.set(p, restarted(1))
		after(time.Second)
		l.before(nil)
		after(11 * time.Minute)
		l.has("p", restarted(1))
	})
}

// TestOrderOfContainers checks that the order is no difference.
func TestOrderOfContainers(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		q := apiPod("p")
		q.Spec.InitContainers = []v1.Container{{Name: "z"}, {Name: "y"}}
		q.Spec.Containers = []v1.Container{{Name: "b"}, {Name: "a"}}
		q.Status = *running()
		q.Status.InitContainerStatuses = []v1.ContainerStatus{{Name: "y"}, {Name: "z"}}
		q.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "b"}, {Name: "a"}}
		p := l.put(q)
		s := p.Status.DeepCopy()
		s.InitContainerStatuses = []v1.ContainerStatus{{Name: "z"}, {Name: "y"}}
		s.ContainerStatuses = []v1.ContainerStatus{{Name: "a"}, {Name: "b"}}
		l.start()
		l.set(p, s)
		after(time.Hour)
		l.wants(0)
		if l.get("p").Status.ContainerStatuses[0].Name != "b" {
			t.Error("what the pod source told was changed")
		}
		s = s.DeepCopy()
		s.InitContainerStatuses[0].RestartCount, s.ContainerStatuses[0], s.ContainerStatuses[1] = 1, s.ContainerStatuses[1], s.ContainerStatuses[0]
		l.set(p, s)
		after(time.Hour)
		l.wants(0, "patch p")
		got := l.get("p").Status.InitContainerStatuses
		if got[0].Name != "z" || got[1].Name != "y" || strings.Contains(l.since(0)[0].Patch, `"containerStatuses"`) {
			t.Errorf("patch %s", l.since(0)[0].Patch)
		}
	})
}

func TestFinalPhaseAndContainers(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		q := apiPod("p")
		q.Status = *over()
		p := l.put(q)
		l.start()
		l.set(p, running())
		after(24 * time.Hour)
		l.wants(0)
		l.has("p", over())
		if n := l.log.count("illegal transition"); n != 1 {
			t.Errorf("said %d times", n)
		}
		s := over()
		s.Phase = v1.PodRunning
		s.ContainerStatuses[0].RestartCount = 3
		l.set(p, s)
		after(time.Minute)
		l.wants(0, "patch p")
		if got := l.get("p").Status.Phase; got != v1.PodSucceeded {
			t.Errorf("phase %s", got)
		}
	})
}

// TestPhaseNeverGoesBack covers a pod from the journal, which does not record that
// it ran.
func TestPhaseNeverGoesBack(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		q := apiPod("p")
		q.Status = *running()
		p := l.put(q)
		l.start()
		s := running()
		s.Phase = v1.PodPending
		s.ContainerStatuses[0].State = v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "PodInitializing"}}
		l.set(p, s)
		after(time.Minute)
		l.wants(0, "patch p")
		if got := l.get("p").Status; got.Phase != v1.PodRunning || got.ContainerStatuses[0].State.Waiting == nil {
			t.Errorf("phase %s, %+v", got.Phase, got.ContainerStatuses[0].State)
		}
	})
}

func TestServerThatKeepsNotAll(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		p := l.put(apiPod("p"))
		l.keeps(func(s *v1.PodStatus) { s.ObservedGeneration = 0 })
		l.start()
		l.set(p, running())
		after(24 * time.Hour)
		l.wants(0, "patch p", "patch p") // the second shows that it was not somebody else
		l.set(p, restarted(1))
		after(24 * time.Hour)
		l.wants(2, "patch p")
	})
}

func TestSomebodyElseChangesIt(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		p := l.put(apiPod("p"))
		l.start()
		l.set(p, running())
		after(time.Minute)
		spoil := func() {
			q := l.get("p").DeepCopy()
			q.Status.Conditions[1].Message = "spoiled"
			l.put(q)
			after(time.Second)
		}
		spoil()
		l.wants(1, "patch p")
		l.has("p", running())
		for range 1200 {
			spoil()
		}
		if n := l.count(); n > 20 {
			t.Errorf("%d requests in 20 minutes against somebody else", n)
		}
	})
}

// TestChangedMeanwhile removes a pod's readiness between the pod on which a patch
// is based and the patch, which does not contain it.
func TestChangedMeanwhile(t *testing.T) {
	for name, told := range map[string]bool{"and the watch tells": true, "and the watch tells nothing": false} {
		t.Run(name, func(t *testing.T) {
			inLab(t, func(t *testing.T, l *lab) {
				q := apiPod("p")
				q.Status = *running()
				p := l.put(q)
				l.start()
				l.set(p, running())
				after(time.Minute)
				l.wants(0)
				if !told {
					l.watch(nil)
				}
				l.before(func(context.Context, call) error {
					l.before(nil)
					q := l.get("p").DeepCopy()
					q.Status.Conditions[1].Status = v1.ConditionFalse
					l.put(q)
					return nil
				})
				l.set(p, restarted(1))
				after(time.Minute)
				l.has("p", restarted(1))
				l.wants(0, "patch p", "patch p")
			})
		})
	}
}
