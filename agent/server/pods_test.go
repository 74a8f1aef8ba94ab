package server

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	kubelet "github.com/tinylet/tinylet/agent/config/kubeletconfig"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/server/authn"
)

func TestPods(t *testing.T) {
	b := newBoard(t)
	b.pods = append(b.pods, running("kube-system", "<proxy>", "proxy"))
	b.start()
	admin := b.admin()
	got := decoded[v1.PodList](t, b.ask(admin, "GET", "/pods").text)
	want := v1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, Items: []v1.Pod{*b.pods[0], *b.pods[1]}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pods (-want +got):\n%s", diff)
	}
	b.mu.Lock()
	b.pods = nil
	b.mu.Unlock()
	if got := b.ask(admin, "GET", "/pods").text; got != listHead+"]}\n" {
		t.Errorf("no pods: %q", got)
	}
}

func TestRunningPods(t *testing.T) {
	b := newBoard(t)
	b.start()
	got := decoded[v1.PodList](t, b.ask(b.admin(), "GET", "/runningpods/").text)
	want := v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "1"}}
	want.Spec.Containers = []v1.Container{{Name: "app", Image: "sha256:1"}}
	if diff := cmp.Diff([]v1.Pod{want}, got.Items); diff != "" {
		t.Errorf("pods (-want +got):\n%s", diff)
	}
}

// static returns a static pod that was first seen at a time.
func static(uid types.UID, seen string) *v1.Pod {
	p := running("default", "web", "app")
	p.UID, p.Annotations = uid, map[string]string{pod.AnnotationSource: pod.SourceFile, pod.AnnotationFirstSeen: seen}
	return p
}

// TestNewerPodOfAName: a terminating pod and its replacement have the same name.
func TestNewerPodOfAName(t *testing.T) {
	ending, next, later := running("default", "web", "app"), running("default", "web", "app"), running("default", "web", "app")
	ending.DeletionTimestamp, ending.UID = &metav1.Time{Time: time.Unix(9000, 0)}, "ending"
	ending.CreationTimestamp = metav1.Unix(5000, 0)
	next.UID, later.UID, later.CreationTimestamp = "next", "later", metav1.Unix(2000, 0)
	edited, before := static("edited", "2026-03-01T12:00:01Z"), static("before", "2026-03-01T12:00:00Z")
	for name, tt := range map[string]struct {
		pods []*v1.Pod
		want string
	}{
		"none":                  {nil, ""},
		"alone":                 {[]*v1.Pod{ending}, "ending"},
		"one ends, first":       {[]*v1.Pod{ending, next}, "next"},
		"one ends, last":        {[]*v1.Pod{next, ending}, "next"},
		"the later, first":      {[]*v1.Pod{later, next}, "later"},
		"the later, last":       {[]*v1.Pod{next, later}, "later"},
		"of a manifest, first":  {[]*v1.Pod{edited, before}, "edited"},
		"of a manifest, last":   {[]*v1.Pod{before, edited}, "edited"},
		"of another namespace":  {[]*v1.Pod{running("other", "web", "app")}, ""},
		"of another pod's name": {[]*v1.Pod{running("default", "web2", "app")}, ""},
	} {
		b := newBoard(t)
		b.pods = tt.pods
		p, _, ok := b.build().findPod("default", "web")
		if ok != (tt.want != "") || ok && string(p.UID) != tt.want {
			t.Errorf("%s: %v %v", name, p, ok)
		}
	}
}

// thirty returns the pods of a full node, each about as large as one of a Deployment.
func thirty() []*v1.Pod {
	var pods []*v1.Pod
	for i := range 30 {
		p := running("default", fmt.Sprintf("web-7c9d8f5b6-%05d", i), "app", "side")
		p.Labels = map[string]string{"app": "web", "pod-template-hash": "7c9d8f5b6"}
		for j := range p.Spec.Containers {
			for k := range 8 {
				p.Spec.Containers[j].Env = append(p.Spec.Containers[j].Env, v1.EnvVar{Name: fmt.Sprintf("NAME_%d", k), Value: "a value of some length"})
				p.Spec.Containers[j].VolumeMounts = append(p.Spec.Containers[j].VolumeMounts, v1.VolumeMount{Name: fmt.Sprintf("volume-%d", k), MountPath: "/var/lib/x"})
			}
		}
		pods = append(pods, p)
	}
	return pods
}

// largest is a response writer that records the size of the largest write.
type largest struct {
	header http.Header
	piece  int
	total  int
}

func (l *largest) Header() http.Header { return l.header }
func (l *largest) WriteHeader(int)     {}
func (l *largest) Write(p []byte) (int, error) {
	l.piece, l.total = max(l.piece, len(p)), l.total+len(p)
	return len(p), nil
}

// TestPodsArePieces: the whole list is never in memory.
func TestPodsArePieces(t *testing.T) {
	b := newBoard(t)
	b.pods = thirty()
	s := b.build()
	w := &largest{header: http.Header{}}
	s.pods(newDeadlineWriter(w), httptest.NewRequest("GET", "/pods", nil), nil)
	if w.piece > w.total/len(b.pods)*3/2 {
		t.Errorf("a piece of %d of %d bytes", w.piece, w.total)
	}
}

// benchmarked returns a server that allows anonymous requests everything.
func benchmarked(b *testing.B) (*board, *Server) {
	board := newBoard(b)
	board.pods = thirty()
	board.trust(authn.Config{Anonymous: true})
	board.allow(kubelet.KubeletAuthorizationModeAlwaysAllow)
	return board, board.build()
}

func BenchmarkPods(b *testing.B) {
	_, s := benchmarked(b)
	r := httptest.NewRequest("GET", "/pods", nil)
	b.ReportAllocs()
	w := &largest{header: http.Header{}}
	for b.Loop() {
		w.total = 0
		s.guard.ServeHTTP(w, r)
	}
	b.ReportMetric(float64(w.total), "text-bytes")
}

// BenchmarkGzip is a scrape with as much text as 30 pods have.
func BenchmarkGzip(b *testing.B) {
	line := []byte("container_memory_working_set_bytes{container=\"app\",pod=\"web-7c9d8f5b6-00017\",namespace=\"default\"} 1.7825792e+07\n")
	d := newGzipPool()
	b.ReportAllocs()
	w := &largest{header: http.Header{}}
	for b.Loop() {
		z := &gzipResponse{from: d, to: newDeadlineWriter(w)}
		for range 2000 {
			if _, err := z.Write(line); err != nil {
				b.Fatal(err)
			}
		}
		if err := z.finish(); err != nil {
			b.Fatal(err)
		}
		z.release()
	}
}
