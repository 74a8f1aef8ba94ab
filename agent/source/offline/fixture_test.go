package offline

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/source/objects"
	"github.com/tinylet/tinylet/agent/store/journal"
)

// lines is a log that tests read.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// count is how often the log says something.
func (l *lines) count(what string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), what)
}

func (l *lines) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// mustOpen opens a store, which the test's end closes.
func mustOpen(t testing.TB, c Config) *Store {
	t.Helper()
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	s, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// reopened is what the next start finds.
func reopened(t testing.TB, s *Store) *Store {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return mustOpen(t, s.config)
}

// content is the journal's file.
func content(t testing.TB, dir string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "journal"))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// unchanged fails the test if do writes to the disk.
func unchanged(t *testing.T, s *Store, do func()) {
	t.Helper()
	before := content(t, s.config.Dir)
	do()
	if !bytes.Equal(before, content(t, s.config.Dir)) {
		t.Error("it was written to the disk")
	}
}

// full is a journal on a disk that can be full, and that counts writes.
type full struct {
	disk
	err    error
	writes int
}

func (f *full) Write(changes ...journal.Change) error {
	f.writes++
	if f.err != nil {
		return f.err
	}
	return f.disk.Write(changes...)
}

// fill makes a store's disk one that can fail.
func fill(s *Store) *full {
	f := &full{disk: s.journal}
	s.journal = f
	return f
}

// aPod refers to ConfigMap "map" and Secret "secret", or to others.
func aPod(uid string, change ...func(*v1.Pod)) *v1.Pod {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod-" + uid, UID: types.UID(uid), ResourceVersion: "7",
			Labels:        map[string]string{"app": "a"},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}},
		Spec: v1.PodSpec{
			Containers: []v1.Container{{Name: "c", Image: "i", Env: []v1.EnvVar{{Name: "A", Value: "b"}, {Name: "S", ValueFrom: &v1.EnvVarSource{
				SecretKeyRef: &v1.SecretKeySelector{LocalObjectReference: v1.LocalObjectReference{Name: "secret"}, Key: "k"}}}}}},
			Volumes: []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{
				ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: "map"}}}}},
		},
		Status: v1.PodStatus{Phase: v1.PodRunning, PodIP: "10.0.0.1"},
	}
	for _, c := range change {
		c(p)
	}
	return p
}

func uidsOf(pods []*v1.Pod) string {
	var uids []string
	for _, p := range pods {
		uids = append(uids, string(p.UID))
	}
	return strings.Join(uids, " ")
}

func mustAdmit(t testing.TB, s *Store, pods ...*v1.Pod) {
	t.Helper()
	for _, p := range pods {
		if err := s.Admit(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var (
	errLink   = errors.New("no route to host")
	succeeded = &v1.PodStatus{Phase: v1.PodSucceeded, Message: "done"}
)

// server is an API server's objects. While it hangs, it answers nothing until
// the context ends; while it fails, it fails at once; each answer takes delay.
type server struct {
	mu    sync.Mutex
	maps  map[string]*v1.ConfigMap // and secrets, by namespace/name
	err   error
	hangs bool
	delay time.Duration
	asked int
}

func newServer() *server { return &server{maps: make(map[string]*v1.ConfigMap)} }

func (s *server) set(namespace, name, version, value string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.maps[namespace+"/"+name] = &v1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "u-" + types.UID(name), ResourceVersion: version},
		Data:       map[string]string{"k": value},
	}
}

func (s *server) state(hangs bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hangs, s.err = hangs, err
}

func (s *server) requests() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

func (s *server) ask(ctx context.Context, kind, namespace, name string) (*v1.ConfigMap, error) {
	s.mu.Lock()
	s.asked++
	m, err, hangs, delay := s.maps[namespace+"/"+name], s.err, s.hangs, s.delay
	s.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	if delay > 0 {
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	if err != nil {
		return nil, err
	}
	if m == nil {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: kind}, name)
	}
	return m, nil
}

func (s *server) ConfigMap(ctx context.Context, namespace, name string) (*v1.ConfigMap, error) {
	return s.ask(ctx, "configmap", namespace, name)
}

func (s *server) Secret(ctx context.Context, namespace, name string) (*v1.Secret, error) {
	m, err := s.ask(ctx, "secret", namespace, name)
	if err != nil {
		return nil, err
	}
	return &v1.Secret{ObjectMeta: m.ObjectMeta, Type: v1.SecretTypeOpaque, Data: map[string][]byte{"k": []byte(m.Data["k"])}}, nil
}

func (s *server) PersistentVolumeClaim(ctx context.Context, namespace, name string) (*v1.PersistentVolumeClaim, error) {
	m, err := s.ask(ctx, "persistentvolumeclaim", namespace, name)
	if err != nil {
		return nil, err
	}
	return &v1.PersistentVolumeClaim{ObjectMeta: m.ObjectMeta, Spec: v1.PersistentVolumeClaimSpec{VolumeName: m.Data["k"]}}, nil
}

func (s *server) PersistentVolume(ctx context.Context, name string) (*v1.PersistentVolume, error) {
	m, err := s.ask(ctx, "persistentvolume", "", name)
	if err != nil {
		return nil, err
	}
	return &v1.PersistentVolume{ObjectMeta: m.ObjectMeta, Spec: v1.PersistentVolumeSpec{StorageClassName: m.Data["k"]}}, nil
}

func (s *server) RuntimeClass(ctx context.Context, name string) (*nodev1.RuntimeClass, error) {
	m, err := s.ask(ctx, "runtimeclass", "", name)
	if err != nil {
		return nil, err
	}
	return &nodev1.RuntimeClass{ObjectMeta: m.ObjectMeta, Handler: m.Data["k"]}, nil
}

// tokenEnd is when the tokens end.
var tokenEnd = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

func (s *server) Token(ctx context.Context, p *v1.Pod, audience string, _ time.Duration) (string, time.Time, error) {
	m, err := s.ask(ctx, "serviceaccount", p.Namespace, "token")
	if err != nil {
		return "", time.Time{}, err
	}
	return m.Data["k"] + "|" + string(p.UID) + "|" + audience, tokenEnd, nil
}

func (s *server) TrustBundle(ctx context.Context, source *v1.ClusterTrustBundleProjection) (string, error) {
	m, err := s.ask(ctx, "clustertrustbundle", "", *source.Name)
	if err != nil {
		return "", err
	}
	return m.Data["k"], nil
}

func (s *server) Services(ctx context.Context, namespace string) ([]*v1.Service, error) {
	m, err := s.ask(ctx, "services", namespace, "services")
	if err != nil {
		return nil, err
	}
	return []*v1.Service{{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "svc", Labels: map[string]string{"l": "l"}}, Spec: v1.ServiceSpec{ClusterIP: m.Data["k"]}}}, nil
}

var (
	_ objects.Reader = (*server)(nil)
	_ objects.Reader = (*objects.Folder)(nil)
	_ APIReader      = (*server)(nil)
)
