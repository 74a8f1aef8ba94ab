package bench

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

func podIn(name string, phase corev1.PodPhase) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.PodStatus{Phase: phase}}
}

func TestLifetimes(t *testing.T) {
	start := time.Unix(1000, 0)
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	l, names := newLifetimes(), []string{"a", "b"}
	l.see(watch.Added, podIn("a", corev1.PodPending), at(1))
	l.see(watch.Modified, podIn("a", corev1.PodRunning), at(2))
	l.see(watch.Modified, podIn("a", corev1.PodRunning), at(3)) // later news change nothing
	if _, all, err := l.ran(names, start); all || err != nil {
		t.Errorf("one of two runs: all %v, %v", all, err)
	}
	l.see(watch.Modified, podIn("b", corev1.PodRunning), at(5))
	took, all, err := l.ran(names, start)
	if want := []time.Duration{2 * time.Second, 5 * time.Second}; !all || err != nil || !slices.Equal(took, want) {
		t.Errorf("ran after %v, all %v, %v; want %v", took, all, err, want)
	}
	ending := podIn("a", corev1.PodSucceeded)
	ending.DeletionTimestamp = &metav1.Time{Time: at(6)}
	l.see(watch.Modified, ending, at(6))
	l.see(watch.Deleted, ending, at(7))
	if _, all, _ := l.went(names, start); all {
		t.Error("one of two is gone, but all are said to be")
	}
	l.see(watch.Deleted, podIn("b", corev1.PodRunning), at(9))
	took, all, err = l.went(names, start)
	if want := []time.Duration{7 * time.Second, 9 * time.Second}; !all || err != nil || !slices.Equal(took, want) {
		t.Errorf("went after %v, all %v, %v; want %v", took, all, err, want)
	}
}

func TestLifetimesOfABrokenPod(t *testing.T) {
	l := newLifetimes()
	p := podIn("a", corev1.PodFailed)
	p.Status.Reason = "OutOfpods"
	l.see(watch.Modified, p, time.Now())
	if _, _, err := l.ran([]string{"a"}, time.Now()); err == nil {
		t.Error("a pod that was rejected is waited for")
	}
}
