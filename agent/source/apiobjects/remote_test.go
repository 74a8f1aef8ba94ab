package apiobjects

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tinylet/tinylet/agent/pod"
)

func TestFirstReadWaits(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		l.Put(configMap("a", "1"))
		l.Put(configMap("b", "1"))
		hang := make(chan struct{})
		l.set(func() { l.hang = hang })
		l.SetReferencingPods([]*v1.Pod{podWith("pod", "a", "b")})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := l.ConfigMap(ctx, "ns", "a"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
		var group sync.WaitGroup
		for range 20 {
			group.Go(func() {
				if got := l.text("a"); got != "1" {
					t.Errorf("read %q", got)
				}
			})
		}
		group.Go(func() { // whose pod goes while it waits: it is fetched
			if got := l.text("b"); got != "1" {
				t.Errorf("read %q", got)
			}
		})
		synctest.Wait()
		l.SetReferencingPods([]*v1.Pod{podWith("pod", "a")})
		synctest.Wait()
		l.set(func() { l.hang = nil })
		close(hang)
		group.Wait()
		l.expect("get configmaps/ns/b", "list configmaps/ns/a", "list configmaps/ns/b", "watch configmaps/ns/a")
		if told := l.told(); len(told) > 0 {
			t.Errorf("told %q", told)
		}
	})
}

func TestStaticPodsAskNothing(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		l.Put(configMap("a", "1"))
		static := podWith("static", "a", "b")
		static.Annotations = map[string]string{pod.AnnotationSource: pod.SourceFile}
		static.Spec.Volumes = append(static.Spec.Volumes, v1.Volume{VolumeSource: v1.VolumeSource{
			PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "claim"},
		}})
		mirror := podWith("mirror", "a", "b")
		mirror.Annotations = map[string]string{pod.AnnotationMirror: "x"}
		l.SetReferencingPods([]*v1.Pod{static, mirror})
		if got := l.text("a"); got != "not found" {
			t.Errorf("read %q", got)
		}
		if _, err := l.PersistentVolumeClaim(t.Context(), "ns", "claim"); !apierrors.IsNotFound(err) {
			t.Errorf("claim: %v", err)
		}
		l.expect()
		ended := podWith("ended", "b")
		ended.Status.Phase = v1.PodSucceeded
		other := podWith("other", "a")
		other.Spec.Volumes = append(other.Spec.Volumes, static.Spec.Volumes[2])
		l.Put(claimNamed("claim", "volume"))
		l.SetReferencingPods([]*v1.Pod{static, other, ended})
		if _, err := l.PersistentVolumeClaim(t.Context(), "ns", "claim"); err != nil {
			t.Errorf("claim of a pod of the server too: %v", err)
		}
		if a, b := l.text("a"), l.text("b"); a != "1" || b != "not found" {
			t.Errorf("read %q, %q", a, b)
		}
		l.expect("get persistentvolumeclaims/ns/claim", "list configmaps/ns/a", "watch configmaps/ns/a")
	})
}

func TestReadBeforeRefer(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		l.Put(configMap("a", "1"))
		if a, b := l.text("a"), l.text("b"); a != "1" || b != "not found" {
			t.Errorf("read %q, %q", a, b)
		}
		l.text("a")
		l.expect("get configmaps/ns/a", "get configmaps/ns/b")
		time.Sleep(recently)
		l.Put(configMap("a", "2"))
		if got := l.text("a"); got != "2" {
			t.Errorf("read %q", got)
		}
		l.expect("get configmaps/ns/a")
		l.SetReferencingPods([]*v1.Pod{podWith("pod", "a")})
		// It may have changed since the read.
		if told := l.told(); !slices.Equal(told, []string{"ConfigMap ns/a"}) {
			t.Errorf("told %q", told)
		}
	})
}

func TestEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.hang = make(chan struct{})
		l := &lab{t: t, server: s}
		var err error
		if l.Objects, err = New(Config{API: s, Log: testLog(l)}); err != nil {
			t.Fatal(err)
		}
		// A read before Run waits for it.
		early := make(chan error, 2)
		go func() {
			_, err := l.RuntimeClass(t.Context(), "x")
			early <- err
		}()
		l.SetReferencingPods([]*v1.Pod{podWith("pod", "a")})
		go func() {
			_, err := l.ConfigMap(t.Context(), "ns", "a")
			early <- err
		}()
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- l.Run(ctx) }()
		synctest.Wait()
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v", err)
		}
		for range 2 {
			if err := <-early; err == nil {
				t.Error("a read has an answer")
			}
		}
		if _, err := l.ConfigMap(t.Context(), "ns", "late"); !errors.Is(err, errShutdown) {
			t.Errorf("a read after the end: %v", err)
		}
		l.SetReferencingPods(nil)
	})
	for _, c := range []Config{{}, {API: newServer()}, {Log: testLog(nil)}} {
		if _, err := New(c); err == nil {
			t.Errorf("New takes %+v", c)
		}
	}
}

func TestManyAtOnce(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		names := []string{"a", "b", "c", "d", "e"}
		for _, name := range names {
			l.Put(configMap(name, "1"))
		}
		var group sync.WaitGroup
		for i := range 4 {
			group.Go(func() {
				for n := range 200 {
					if got := l.text(names[(n+i)%len(names)]); got == "" {
						t.Error("read nothing")
					}
				}
			})
		}
		group.Go(func() {
			for n := range 200 {
				l.SetReferencingPods([]*v1.Pod{podWith("pod", names[:n%len(names)]...)})
				l.Put(configMap(names[n%len(names)], fmt.Sprint(n)))
				time.Sleep(10 * time.Millisecond)
			}
		})
		group.Wait()
		l.SetReferencingPods([]*v1.Pod{podWith("pod", names[:2]...)})
		time.Sleep(time.Second)
		if n := l.Watches(); n != 2 || l.text("a") != "195" {
			t.Errorf("%d watches, read %q", n, l.text("a"))
		}
	})
}
