package statusmanager_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tinylet/tinylet/agent/apiserver/statusmanager"
)

func TestOutage(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		var pods []*v1.Pod
		for i := range 10 {
			pods = append(pods, l.put(apiPod(fmt.Sprint("p", i))))
		}
		l.start()
		l.before(func(context.Context, call) error { return errLink })
		for _, p := range pods {
			l.set(p, restarted(0))
		}
		after(2 * time.Second)
		if n := l.count(); n < 5 {
			t.Errorf("%d requests: those that fail together lengthen the wait together", n)
		}
		const days = 1
		for n := range days * 24 {
			for _, p := range pods {
				l.set(p, restarted(n))
			}
			after(time.Hour)
		}
		if n := l.count(); n > days*24*3600/15 {
			t.Errorf("%d requests in %d days without a server", n, days)
		}
		names := map[string]bool{}
		for _, c := range l.since(0) {
			names[c.Name] = true
		}
		if len(names) != 10 {
			t.Errorf("only %v were tried: one that fails for itself would hold up all others", names)
		}
		if n := l.log.count("cannot update pod statuses"); n != 1 {
			t.Errorf("the outage is logged %d times", n)
		}
		n := l.count()
		l.before(nil)
		after(time.Minute)
		if got := l.count() - n; got > 11 {
			t.Errorf("%d requests for 10 pods", got)
		}
		for _, p := range pods {
			l.has(p.Name, restarted(days*24-1))
		}
		if n := l.log.count("updating pod statuses on API server again"); n != 1 {
			t.Errorf("its end is logged %d times", n)
		}
	})
}

func TestServerThatIsBusy(t *testing.T) {
	for _, code := range []error{
		apierrors.NewServiceUnavailable("x"), apierrors.NewTooManyRequests("x", 1), apierrors.NewUnauthorized("x"), context.DeadlineExceeded,
	} {
		inLab(t, func(t *testing.T, l *lab) {
			p := l.put(apiPod("p"))
			q := l.put(apiPod("q"))
			l.start()
			l.before(func(context.Context, call) error { return code })
			l.set(p, running())
			l.set(q, running())
			after(time.Hour)
			if n := l.count(); n > 250 {
				t.Errorf("%v: %d requests in an hour", code, n)
			}
			if l.log.count("level=WARN") != 1 {
				t.Errorf("%v: %s", code, l.log.buf.String())
			}
			l.before(nil)
			after(time.Minute)
			l.has("p", running())
			l.has("q", running())
		})
	}
}

// TestOneThatFails covers a fault that concerns one pod: others are not affected.
func TestOneThatFails(t *testing.T) {
	internal, forbidden := apierrors.NewInternalError(fmt.Errorf("webhook")), apierrors.NewForbidden(podsResource, "p", nil)
	for name, answers := range map[string][]error{ // the last one repeats
		"500": {internal}, "403": {forbidden},
		"422":           {apierrors.NewInvalid(v1.SchemeGroupVersion.WithKind("Pod").GroupKind(), "p", nil)},
		"500, then 403": {internal, forbidden}, "403, then 500": {forbidden, internal},
	} {
		t.Run(name, func(t *testing.T) {
			inLab(t, func(t *testing.T, l *lab) {
				p := l.put(apiPod("p"))
				q := l.put(apiPod("q"))
				l.start()
				left := answers
				l.before(func(_ context.Context, c call) error {
					if c.Name != "p" || c.Verb != "patch" {
						return nil
					}
					answer := left[0]
					if len(left) > 1 {
						left = left[1:]
					}
					return answer
				})
				for n := range 720 {
					l.set(p, restarted(n))
					if n%120 == 0 {
						l.set(q, restarted(n))
					}
					after(5 * time.Second)
					if n%120 == 0 {
						l.has("q", restarted(n))
					}
				}
				least, most := 3600/30, 3600/15+10
				if !errors.Is(left[0], internal) {
					least, most = 3600/300, 2*(3600/150+10)
				}
				if n := l.count() - 6; n < least || n > most {
					t.Errorf("%d requests in an hour, want %d to %d", n, least, most)
				}
				if n := l.log.count("level=WARN"); n != len(answers) {
					t.Errorf("%d warnings: %s", n, l.log.buf.String())
				}
				l.before(nil)
				after(6 * time.Minute)
				l.has("p", restarted(719))
			})
		})
	}
}

func TestRequestThatHangs(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		p := l.put(apiPod("p"))
		q := l.put(apiPod("q"))
		l.start()
		l.before(func(ctx context.Context, c call) error {
			if c.Name == "p" {
				<-ctx.Done()
				time.Sleep(time.Second)
				return ctx.Err()
			}
			return nil
		})
		l.set(p, running())
		for n := range 100 {
			l.set(q, restarted(n))
			after(10 * time.Second)
			l.has("q", restarted(n))
		}
		if n := l.log.count("cannot update pod statuses"); n != 0 {
			t.Errorf("the server answered others, and an outage was logged %d times", n)
		}
		l.stop()
		if n, _ := l.InFlight(); n != 0 {
			t.Error("Run did not wait for the request that hangs")
		}
		l.before(nil)
		l.start()
		after(time.Minute)
		l.has("p", running())
	})
}

func TestAnswersThatAreLost(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		q := apiPod("q")
		q.Status = *over()
		p, q := l.put(apiPod("p")), l.put(deleted(q))
		s := staticPod("s", "h")
		var mu sync.Mutex // requests come at the same time
		lost := map[string]bool{}
		l.after(func(c call) error {
			mu.Lock()
			defer mu.Unlock()
			if c.Verb != "get" && !lost[c.Verb] {
				lost[c.Verb] = true
				return errLink
			}
			return nil
		})
		l.start()
		l.watch(nil) // the link is down for it too
		l.with(func() { l.done[q.UID] = true })
		l.set(p, running())
		l.set(s, running())
		after(10 * time.Minute)
		mu.Lock()
		if len(lost) != 3 {
			t.Errorf("lost %v", lost)
		}
		mu.Unlock()
		l.has("p", running())
		if l.get("q") != nil {
			t.Error("q is not deleted")
		}
		m := l.get("s")
		if m == nil || m.Status.Phase != v1.PodRunning {
			t.Errorf("mirror pod %v", m)
		}
		l.watch(l.reporter.SetPods)
		n := l.count()
		after(8 * time.Minute)
		l.wants(n)
		created := 0
		for _, c := range l.since(0) {
			if strings.HasPrefix(c.Verb, "create") {
				created++
			}
		}
		if created != 2 {
			t.Errorf("created %d times", created)
		}
	})
}

// TestRefusalOfAnotherPod covers a new pod with the name of one that the server
// rejected so often that attempts are rare.
func TestRefusalOfAnotherPod(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		p := l.put(apiPod("p"))
		l.start()
		l.before(func(context.Context, call) error { return apierrors.NewForbidden(podsResource, "p", nil) })
		l.set(p, running())
		after(time.Hour)
		q := apiPod("p")
		q.UID = "another"
		l.before(nil)
		q = l.put(q)
		l.unset(p)
		l.set(q, running())
		after(time.Second)
		l.has("p", running())
	})
}

// TestRecovery lets another component notice first that the server answers again, after
// no answer and after an answer that the request is forbidden: a server that has just
// started has no rules yet.
func TestRecovery(t *testing.T) {
	for _, failure := range []error{errLink, apierrors.NewForbidden(podsResource, "p", nil)} {
		inLab(t, func(t *testing.T, l *lab) {
			p := l.put(apiPod("p"))
			back := make(chan struct{})
			l.start(func(c *statusmanager.Config) {
				c.Recovered = func() <-chan struct{} {
					select {
					case <-back:
						return nil
					default:
						return back
					}
				}
			})
			l.before(func(context.Context, call) error { return failure })
			l.set(p, running())
			after(time.Hour)
			l.before(nil)
			n := l.count()
			close(back)
			after(2 * time.Second)
			if got := l.count() - n; got != 1 {
				t.Errorf("%v: %d requests at the end of the outage, want the one that waited", failure, got)
			}
			l.has("p", running())
		})
	}
}
