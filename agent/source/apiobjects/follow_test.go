package apiobjects

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
)

func TestFollows(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		l.Put(configMap("a", "1"))
		var pods []*v1.Pod
		for i := range 100 {
			pods = append(pods, podWith(fmt.Sprintf("pod-%d", i), "a", "a"))
		}
		l.SetReferencingPods(pods)
		if got := l.text("a"); got != "1" {
			t.Errorf("read %q", got)
		}
		l.expect("list configmaps/ns/a", "watch configmaps/ns/a")
		m, err := l.ConfigMap(t.Context(), "ns", "a")
		if err != nil || m.ManagedFields != nil || len(m.Annotations) != 1 {
			t.Errorf("%v, %+v", err, m)
		}
		if told := l.told(); len(told) > 0 {
			t.Errorf("the first answer is told: %q", told)
		}
		for _, step := range []struct {
			what string
			do   func()
			want string
			told []string
		}{
			{"changed", func() { l.Put(configMap("a", "2")) }, "2", []string{"ConfigMap ns/a"}},
			{"changed in what no pod sees", func() {
				m := configMap("a", "2")
				m.Annotations["lock"] = "held"
				l.Put(m)
			}, "2", nil},
			{"a bookmark", func() { l.bookmark(1000) }, "2", nil},
			{"removed", func() { l.Remove(apiclient.ConfigMaps, "ns", "a") }, "not found", []string{"ConfigMap ns/a"}},
			{"made again", func() { l.Put(configMap("a", "3")) }, "3", []string{"ConfigMap ns/a"}},
		} {
			step.do()
			if told := l.told(); !slices.Equal(told, step.told) {
				t.Errorf("%s: told %q", step.what, told)
			}
			if got := l.text("a"); got != step.want {
				t.Errorf("%s: read %q", step.what, got)
			}
		}
		l.expect()
		l.SetReferencingPods(pods[:1])
		synctest.Wait()
		if l.Watches() != 1 {
			t.Error("the last pod that refers to it is not enough")
		}
		l.SetReferencingPods(nil)
		synctest.Wait()
		if l.Watches() != 0 {
			t.Error("it is watched though nobody refers to it")
		}
		l.expect()
		l.Put(configMap("a", "4"))
		if told := l.told(); len(told) > 0 {
			t.Errorf("told of what nobody refers to: %q", told)
		}
		l.SetReferencingPods(pods[:2])
		if got := l.text("a"); got != "4" {
			t.Errorf("read %q after it was referred to again", got)
		}
	})
}

func TestSecrets(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		p := podWith("pod")
		p.Spec.ImagePullSecrets = []v1.LocalObjectReference{{Name: "s"}}
		l.SetReferencingPods([]*v1.Pod{p})
		if _, err := l.Secret(t.Context(), "ns", "s"); !apierrors.IsNotFound(err) {
			t.Errorf("error %v", err)
		}
		secret := &v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "s"}, Data: map[string][]byte{"a": []byte("x")}}
		l.Put(secret)
		if told := l.told(); !slices.Equal(told, []string{"Secret ns/s"}) {
			t.Errorf("told %q", told)
		}
		if s, err := l.Secret(t.Context(), "ns", "s"); err != nil || string(s.Data["a"]) != "x" {
			t.Errorf("%v, %v", s, err)
		}
		other := secret.DeepCopy()
		other.Type = v1.SecretTypeDockerConfigJson
		l.Put(other)
		if told := l.told(); len(told) != 1 {
			t.Errorf("told %q of another type", told)
		}
		l.expect("list secrets/ns/s", "watch secrets/ns/s")
	})
}

func TestIdle(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		l.Put(configMap("a", "1"))
		l.SetReferencingPods([]*v1.Pod{podWith("pod", "a", "b")})
		time.Sleep(time.Second)
		l.made()
		time.Sleep(5*time.Minute - 2*time.Second) // no watch is shorter
		l.expect()
		time.Sleep(time.Hour)
		synctest.Wait()
		calls := l.made()
		if n := len(calls); n < 2*6 || n > 2*13 {
			t.Errorf("%d calls in an hour, want those of two watches", n)
		}
		for _, call := range calls {
			if !strings.HasPrefix(call, "watch ") {
				t.Errorf("call %q", call)
			}
		}
		lengths := make(map[int64]bool)
		for _, o := range l.askedFor() {
			seconds := *o.TimeoutSeconds
			if lengths[seconds] = true; seconds < 300 || seconds > 600 || !o.AllowWatchBookmarks {
				t.Errorf("watch with %+v", o)
			}
		}
		if len(lengths) < 3 {
			t.Errorf("watches all last as long: %v", lengths)
		}
		l.bookmark(1000)
		synctest.Wait()
		l.Cut()
		time.Sleep(2 * time.Second)
		options := l.askedFor()
		if last := options[len(options)-1]; last.ResourceVersion != "1000" {
			t.Errorf("watch from version %s, want the bookmark's", last.ResourceVersion)
		}
		if told, lines := l.told(), l.lines(); len(told)+len(lines) > 0 {
			t.Errorf("told %q, logged %q", told, lines)
		}
	})
}

func TestImmutable(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		yes := true
		m := configMap("a", "1")
		m.Immutable = &yes
		l.Put(m)
		l.Put(configMap("b", "1"))
		l.SetReferencingPods([]*v1.Pod{podWith("pod", "a", "b")})
		if got := l.text("a"); got != "1" {
			t.Errorf("read %q", got)
		}
		l.expect("list configmaps/ns/a", "list configmaps/ns/b", "watch configmaps/ns/b")
		m = configMap("b", "2")
		m.Immutable = &yes
		l.Put(m)
		if told := l.told(); len(told) != 1 || l.Watches() != 0 || l.text("b") != "2" {
			t.Errorf("told %q, %d watches of what became immutable", told, l.Watches())
		}
		time.Sleep(time.Hour)
		l.expect()
	})
}

func TestForbiddenUntilThePodIsKnown(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		l.Put(configMap("a", "1"))
		l.set(func() { l.refuse["list configmaps/ns/a"] = forbidden("configmaps", "a") })
		l.SetReferencingPods([]*v1.Pod{podWith("pod", "a")})
		if _, err := l.ConfigMap(t.Context(), "ns", "a"); !apierrors.IsForbidden(err) {
			t.Errorf("error %v", err)
		}
		time.Sleep(5 * time.Minute)
		if n := len(l.made()); n < 10 || n > 30 {
			t.Errorf("%d attempts in 5 min", n)
		}
		if lines := l.lines(); len(lines) != 1 {
			t.Errorf("logged %q", lines)
		}
		l.set(func() { l.fail = errLink })
		time.Sleep(time.Minute)
		l.set(func() { l.fail = nil })
		time.Sleep(time.Minute)
		if lines := l.lines(); len(lines) != 2 {
			t.Errorf("logged %q of an outage meanwhile", lines)
		}
		l.set(func() { clear(l.refuse) })
		time.Sleep(31 * time.Second)
		if told := l.told(); !slices.Equal(told, []string{"ConfigMap ns/a"}) {
			t.Errorf("told %q, though a read had failed", told)
		}
		if got, lines := l.text("a"), l.lines(); got != "1" || len(lines) != 1 {
			t.Errorf("read %q, logged %q", got, lines)
		}
	})
}

func TestOutage(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		names := []string{"a", "b", "c", "d"}
		for _, name := range names {
			l.Put(configMap(name, "1"))
		}
		l.SetReferencingPods([]*v1.Pod{podWith("pod", names...)})
		time.Sleep(time.Minute)
		l.made()
		l.set(func() { l.fail = errLink })
		l.Cut()
		time.Sleep(12 * time.Hour)
		if got := l.text("a"); got != "1" {
			t.Errorf("read %q without a link", got)
		}
		if n := len(l.made()); n > 4*12*60*5 {
			t.Errorf("%d attempts", n)
		}
		if lines := l.lines(); len(lines) != 1 {
			t.Errorf("logged %d lines: %q", len(lines), lines)
		}
		l.SetReferencingPods([]*v1.Pod{podWith("pod", names[:3]...), podWith("new", "e")})
		if got := l.text("e"); !strings.Contains(got, errLink.Error()) {
			t.Errorf("read %q", got)
		}
		l.Put(configMap("a", "2"))
		l.Put(configMap("e", "1"))
		l.Remove(apiclient.ConfigMaps, "ns", "b")
		l.set(func() { l.fail = nil })
		l.made()
		time.Sleep(time.Minute)
		if told := l.told(); !slices.Equal(slices.Sorted(slices.Values(told)), []string{"ConfigMap ns/a", "ConfigMap ns/b", "ConfigMap ns/e"}) {
			t.Errorf("told %q", told)
		}
		l.expect("list configmaps/ns/e", "watch configmaps/ns/a", "watch configmaps/ns/b", "watch configmaps/ns/c", "watch configmaps/ns/e")
		if lines := l.lines(); len(lines) != 1 {
			t.Errorf("logged %q", lines)
		}
		if a, b, e := l.text("a"), l.text("b"), l.text("e"); a != "2" || b != "not found" || e != "1" {
			t.Errorf("read %q, %q, %q", a, b, e)
		}
	})
}

func TestTooOldVersion(t *testing.T) {
	for name, expire := range map[string]func(*lab){
		"at the begin of the watch": func(l *lab) {
			l.set(func() {
				status := apierrors.NewResourceExpired("too old").Status()
				l.refuse["watch configmaps/ns/a"] = &apierrors.StatusError{ErrStatus: status}
			})
			l.Cut()
			time.Sleep(time.Minute)
			l.set(func() { clear(l.refuse) })
		},
		"as an event": func(l *lab) { l.Cut() },
		"as an event of a watch that stands": func(l *lab) {
			status := metav1.Status{Status: metav1.StatusFailure, Code: 410, Reason: metav1.StatusReasonGone}
			l.Cut(watch.Event{Type: watch.Error, Object: &status})
		},
	} {
		t.Run(name, func(t *testing.T) {
			inLab(t, func(t *testing.T, l *lab) {
				l.Put(configMap("a", "1"))
				l.SetReferencingPods([]*v1.Pod{podWith("pod", "a")})
				time.Sleep(time.Minute)
				l.made()
				m := configMap("a", "2") // of which no watch is notified
				m.ResourceVersion = "6"
				l.Restore(7, m)
				expire(l)
				time.Sleep(time.Minute)
				if got, told := l.text("a"), l.told(); got != "2" || len(told) != 1 {
					t.Errorf("read %q, told %q", got, told)
				}
				calls := l.made()
				if n := len(calls); n < 2 || n > 16 || calls[0] != "list configmaps/ns/a" {
					t.Errorf("%d calls: %q", n, calls)
				}
				if lines := l.lines(); len(lines) > 0 {
					t.Errorf("logged %q", lines)
				}
			})
		})
	}
}

func TestWatchThatBreaks(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		l.Put(configMap("a", "1"))
		l.SetReferencingPods([]*v1.Pod{podWith("pod", "a")})
		time.Sleep(time.Minute)
		l.made()
		status := apierrors.NewInternalError(errors.New("decode")).Status()
		l.Cut(watch.Event{Type: watch.Error, Object: &status})
		time.Sleep(2 * time.Second)
		l.expect("watch configmaps/ns/a")
		if lines := l.lines(); len(lines) > 0 {
			t.Errorf("logged %q", lines)
		}
		// Watches that end as soon as they begin are begun ever more rarely.
		for range 600 {
			l.Cut()
			time.Sleep(100 * time.Millisecond)
		}
		if n := len(l.made()); n > 10 {
			t.Errorf("%d watches in a minute", n)
		}
		time.Sleep(time.Minute)
		l.made()
		for range 10 { // but those that stand for a while, at once
			l.Cut()
			time.Sleep(3 * time.Second)
			l.expect("watch configmaps/ns/a")
		}
	})
}

func TestNotToldOfWhatIsDropped(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		e := newEntry(key{Kind: "ConfigMap", Namespace: "ns", Name: "a"})
		for value, want := range []int{0, 1, 0} {
			m := configMap("a", fmt.Sprint(value))
			m.ResourceVersion = fmt.Sprint(value)
			if l.onAnswer(e, m); len(l.told()) != want {
				t.Errorf("answer %d is not told %d times", value, want)
			}
			if value == 1 {
				l.Objects.mu.Lock()
				e.drop()
				l.Objects.mu.Unlock()
			}
		}
	})
}

func TestFewListsAtOnce(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		var names []string
		for i := range 50 {
			names = append(names, fmt.Sprint(i))
		}
		hang := make(chan struct{})
		l.set(func() { l.hang = hang })
		l.SetReferencingPods([]*v1.Pod{podWith("pod", names...)})
		synctest.Wait()
		l.set(func() { l.hang = nil })
		close(hang)
		time.Sleep(time.Second)
		_, most := l.InFlight()
		if n := len(l.made()); n != 100 || most != maxLists {
			t.Errorf("%d calls, %d lists at once", n, most)
		}
	})
}
