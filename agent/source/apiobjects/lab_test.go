package apiobjects

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// lab runs Objects against a server, in virtual time.
type lab struct {
	*server
	*Objects
	t *testing.T

	back chan struct{} // closed at the end of an outage

	mu      sync.Mutex
	changed []string
	logged  []string
}

// inLab runs a test in a bubble.
func inLab(t *testing.T, test func(t *testing.T, l *lab)) {
	synctest.Test(t, func(t *testing.T) {
		l := &lab{t: t, server: newServer(), back: make(chan struct{})}
		var err error
		l.Objects, err = New(Config{API: l.server, Log: slog.New(l), Changed: func(kind, namespace, name string) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.changed = append(l.changed, key{Kind: kind, Namespace: namespace, Name: name}.String())
		}, Recovered: l.recovered})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		ended := make(chan error)
		go func() { ended <- l.Run(ctx) }()
		test(t, l)
		over := errors.New("over")
		cancel(over)
		if err := <-ended; !errors.Is(err, over) {
			t.Errorf("Run ended with %v", err)
		}
		if n := l.Watches(); n != 0 {
			t.Errorf("%d watches are left", n)
		}
	})
}

// recovered tells of one recovery.
func (l *lab) recovered() <-chan struct{} {
	select {
	case <-l.back:
		return nil
	default:
		return l.back
	}
}

// told answers what Changed was told since the last time.
func (l *lab) told() []string {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	changed := l.changed
	l.changed = nil
	return changed
}

func (l *lab) lines() []string {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	logged := l.logged
	l.logged = nil
	return logged
}

func (l *lab) Enabled(context.Context, slog.Level) bool { return true }
func (l *lab) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *lab) WithGroup(string) slog.Handler            { return l }
func (l *lab) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.logged = append(l.logged, r.Message)
	return nil
}

// expect compares the calls since the last time.
func (l *lab) expect(want ...string) {
	l.t.Helper()
	synctest.Wait()
	if got := l.made(); !slices.Equal(got, want) {
		l.t.Errorf("calls %q, want %q", got, want)
	}
}

// text reads a ConfigMap's value a, or says the error.
func (l *lab) text(name string) string {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), time.Minute)
	defer cancel()
	m, err := l.ConfigMap(ctx, "ns", name)
	switch {
	case apierrors.IsNotFound(err):
		return "not found"
	case err != nil:
		return err.Error()
	}
	return m.Data["a"]
}

func configMap(name, value string) *v1.ConfigMap {
	return &v1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, UID: types.UID(name),
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}},
			Annotations:   map[string]string{v1.LastAppliedConfigAnnotation: value, "other": "x"},
		},
		Data: map[string]string{"a": value},
	}
}

// podWith is a pod of the server that refers to ConfigMaps.
func podWith(uid string, names ...string) *v1.Pod {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: uid, UID: types.UID(uid)},
		Spec:       v1.PodSpec{ServiceAccountName: "account"},
	}
	for _, name := range names {
		p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{VolumeSource: v1.VolumeSource{
			ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: name}},
		}})
	}
	return p
}

func testLog(l *lab) *slog.Logger {
	if l == nil {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(l)
}
