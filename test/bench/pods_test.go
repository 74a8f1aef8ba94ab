//go:build cluster

package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/tinylet/tinylet/test/harness/board"
)

const podsPath = "/api/v1/namespaces/default/pods"

// command ends at once on TERM: the shell waits in a builtin, which a signal
// ends, and not for a program.
var command = []string{"sh", "-c", "trap 'exit 0' TERM; sleep 1000000 & wait"}

// pod is a bare pod that needs no scheduler.
func (n node) pod(name string) *corev1.Pod {
	return &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			NodeName: n.name,
			Containers: []corev1.Container{{
				Name: "main", Image: board.BusyboxImage, ImagePullPolicy: corev1.PullIfNotPresent, Command: command,
			}},
		},
	}
}

// request sends a request to the API and reads its answer.
func (n node) request(ctx context.Context, method, path string, body, into any) error {
	var data []byte
	if body != nil {
		var err error
		if data, err = json.Marshal(body); err != nil {
			return err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, n.c.Server()+path, bytes.NewReader(data))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := n.c.Client().Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	if res.StatusCode/100 != 2 {
		return fmt.Errorf("%s %s: %s: %s", method, path, res.Status, answer)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(answer, into)
}

// podWatch is a watch of all pods, from now until close.
type podWatch struct {
	node
	lives  *lifetimes
	cancel context.CancelFunc
	done   chan struct{}
	err    error // why it ended; read after done
}

// watch begins a watch.
func (n node) watch() *podWatch {
	n.Helper()
	ctx, cancel := context.WithCancel(n.Context())
	w := &podWatch{node: n, lives: newLifetimes(), cancel: cancel, done: make(chan struct{})}
	var list corev1.PodList
	if err := n.request(ctx, http.MethodGet, podsPath, nil, &list); err != nil {
		cancel()
		n.Fatal(err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, n.c.Server()+podsPath+"?watch=true&resourceVersion="+list.ResourceVersion, nil)
	if err != nil {
		cancel()
		n.Fatal(err)
	}
	go func() {
		defer close(w.done)
		w.err = w.follow(req)
	}()
	return w
}

// follow takes events until the watch ends. It misses none, however late it
// begins: they are those after the list.
func (w *podWatch) follow(req *http.Request) error {
	res, err := w.c.Client().Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("watch pods: %s", res.Status)
	}
	for dec := json.NewDecoder(res.Body); ; {
		var e metav1.WatchEvent
		if err := dec.Decode(&e); err != nil {
			return err
		}
		at := time.Now()
		if watch.EventType(e.Type) == watch.Error {
			return fmt.Errorf("watch pods: %s", e.Object.Raw)
		}
		var p corev1.Pod
		if err := json.Unmarshal(e.Object.Raw, &p); err != nil {
			return err
		}
		w.lives.see(watch.EventType(e.Type), &p, at)
	}
}

func (w *podWatch) close() {
	w.cancel()
	<-w.done
}

// create makes pods at once and returns how long after that each ran.
func (w *podWatch) create(names []string) []time.Duration {
	w.Helper()
	return w.atOnce("run", names, w.lives.ran, func(ctx context.Context, name string) error {
		return w.request(ctx, http.MethodPost, podsPath, w.pod(name), nil)
	})
}

// delete deletes pods at once and returns how long after that each was gone.
func (w *podWatch) delete(names []string) []time.Duration {
	w.Helper()
	return w.atOnce("are gone", names, w.lives.went, func(ctx context.Context, name string) error {
		return w.request(ctx, http.MethodDelete, podsPath+"/"+name, nil, nil)
	})
}

// atOnce sends a request for each pod and waits until all are as they shall
// be. The times are those of the events, whenever somebody asks.
func (w *podWatch) atOnce(what string, names []string, ask func([]string, time.Time) ([]time.Duration, bool, error), send func(context.Context, string) error) []time.Duration {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	errs := make([]error, len(names))
	var wg sync.WaitGroup
	start := time.Now()
	for i, name := range names {
		wg.Go(func() { errs[i] = send(ctx, name) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		w.Fatal(err)
	}
	for {
		took, all, err := ask(names, start)
		if err != nil {
			w.Fatal(err)
		}
		if all {
			w.Logf("%d pods %s: p50 %.2f s, last %.2f s", len(names), what, median(took).Seconds(), slices.Max(took).Seconds())
			return took
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-w.done:
			w.Fatalf("the watch has ended: %v", w.err)
		case <-ctx.Done():
			w.Fatalf("not all of %d pods %s within %v", len(names), what, patience)
		}
	}
}

// untouched fails when one of the pods was not left alone.
func (n node) untouched(names []string) {
	n.Helper()
	for _, name := range names {
		var p corev1.Pod
		if err := n.request(n.Context(), http.MethodGet, podsPath+"/"+name, nil, &p); err != nil {
			n.Fatal(err)
		}
		if p.Status.Phase != corev1.PodRunning || len(p.Status.ContainerStatuses) != 1 || p.Status.ContainerStatuses[0].RestartCount != 0 {
			n.Errorf("pod %s was not left alone: %+v", name, p.Status)
		}
	}
}
