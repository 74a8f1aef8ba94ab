package server

import (
	"bufio"
	"encoding/json"
	"iter"
	"net/http"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/server/local"
)

// listHead is the start of a v1.PodList as the API's encoder writes it.
const listHead = `{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[`

func (s *Server) pods(w *deadlineWriter, r *http.Request, _ []string) {
	if !s.acquireSnapshot(w, r) {
		return
	}
	defer s.slots.snapshots.free()
	writePods(w, s.podsWithStatus())
}

// podsWithStatus returns copies of the pods with their newest statuses.
func (s *Server) podsWithStatus() iter.Seq[*v1.Pod] {
	return func(yield func(*v1.Pod) bool) {
		for p, status := range s.config.Pods() {
			with := *p
			with.Status = *status
			if !yield(&with) {
				return
			}
		}
	}
}

// writePods writes a list pod by pod, to keep the whole list out of memory.
func writePods(w *deadlineWriter, pods iter.Seq[*v1.Pod]) {
	w.Header().Set("Content-Type", "application/json")
	out := bufio.NewWriterSize(w, 1<<10) // after an error of w, all writes return it
	encoder := json.NewEncoder(out)
	_, _ = out.WriteString(listHead)
	first := true
	for p := range pods {
		if !first {
			_ = out.WriteByte(',')
		}
		first = false
		if encoder.Encode(p) != nil {
			abort()
		}
	}
	_, _ = out.WriteString("]}\n")
	_ = out.Flush() // fails only if the client has disconnected
}

// acquireSnapshot acquires a slot for a response that needs much data. It waits for up to
// snapshotQueue. It limits the time until the last write of the response to snapshotTime.
// It reports whether it acquired the slot, which the caller must free. Otherwise it has
// sent a 503.
func (s *Server) acquireSnapshot(w *deadlineWriter, r *http.Request) bool {
	if !s.slots.snapshots.wait(r.Context(), snapshotQueue) {
		w.Header().Set("Retry-After", "1")
		local.WriteText(w, http.StatusServiceUnavailable, "The node is busy with similar requests, please try again later.\n")
		return false
	}
	w.responseDeadline = time.Now().Add(snapshotTime)
	return true
}

// findPod returns the pod of a name with its newest status; ok is false if there is
// none. If two pods have the name, because one replaces a terminating one, findPod
// returns the newer.
func (s *Server) findPod(namespace, name string) (found *v1.Pod, status *v1.PodStatus, ok bool) {
	for p, st := range s.config.Pods() {
		if p.Namespace == namespace && p.Name == name && (!ok || pod.Newer(p, found)) {
			found, status, ok = p, st, true
		}
	}
	return found, status, ok
}
