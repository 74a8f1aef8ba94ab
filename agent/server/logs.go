package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tinylet/tinylet/agent/container/podlogs"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/server/local"
)

// LogQuery identifies the log of one container, running or not.
type LogQuery struct {
	// Pod is the container's pod; it must not be changed.
	Pod *v1.Pod
	// Container is the container's name, ID its runtime ID without scheme.
	Container, ID string
	// Follow means that LogFile.Ended is used.
	Follow bool
}

// LogFile is the log file of a container.
type LogFile struct {
	Path string
	// Ended is closed when the container has exited and the file has all its
	// output; it may be closed from the start. A goroutine that closes it must end
	// with the context of the query. With nil, the log is followed until its
	// directory is removed.
	Ended <-chan struct{}
}

// containerLogs serves /containerLogs/NAMESPACE/POD/CONTAINER.
func (s *Server) containerLogs(w *deadlineWriter, r *http.Request, parts []string) {
	namespace, name, container := parts[0], parts[1], parts[2]
	in, err := podLogOptions(r.URL.Query())
	if err != nil {
		local.WriteText(w, http.StatusBadRequest, message("Unable to decode query.", err))
		return
	}
	options, err := podlogs.FromPodLogOptions(in, time.Now())
	if err != nil {
		local.WriteText(w, http.StatusUnprocessableEntity, message("Invalid request.", err))
		return
	}
	p, status, ok := s.findPod(namespace, name)
	if !ok {
		local.WriteText(w, http.StatusNotFound, fmt.Sprintf("pod %q does not exist", name))
		return
	}
	if c, _ := pod.FindContainer(&p.Spec, container); c == nil {
		local.WriteText(w, http.StatusNotFound, fmt.Sprintf("container %q not found in pod %q", container, name))
		return
	}
	find := func() (id string, err error) {
		started, _ := s.config.Started(p.UID, container)
		return logContainerID(name, status, container, started, in.Previous)
	}
	id, err := find()
	if err != nil {
		s.config.AwaitObserved(r.Context(), p.UID)
		if newest, observed, ok := s.findPod(namespace, name); ok {
			p, status = newest, observed
		}
		id, err = find()
	}
	if err != nil {
		local.WriteText(w, http.StatusBadRequest, err.Error())
		return
	}
	if options.Follow {
		if !s.slots.followed.try() {
			writeTooMany(w)
			return
		}
		defer s.slots.followed.free()
	}
	s.sendLog(w, r, LogQuery{Pod: p, Container: container, ID: bare(id), Follow: options.Follow}, id, options)
}

// sendLog sends a log until its end, or until the client disconnects. A followed log also
// ends when the server begins to shut down, any other when the server ends the requests
// that remain.
func (s *Server) sendLog(w *deadlineWriter, r *http.Request, q LogQuery, id string, options podlogs.Options) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	file, err := s.config.ContainerLog(ctx, q)
	if err != nil {
		s.config.Log.Info("cannot find container log", "pod", q.Pod.Namespace+"/"+q.Pod.Name, "podUID", q.Pod.UID,
			"container", q.Container, "containerID", q.ID, "error", err)
		local.WriteText(w, http.StatusBadRequest, "unable to retrieve container logs for "+id)
		return
	}
	w.Header().Set("Content-Type", "text/plain")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	out := io.Writer(w)
	if options.Follow {
		if ending, ok := r.Context().Value(endingKey{}).(context.Context); ok {
			defer context.AfterFunc(ending, cancel)()
		}
		// The client receives the headers before the first log line.
		if err := w.FlushError(); err != nil {
			return
		}
		out = flushWriter{w}
	}
	damaged, err := podlogs.Read(ctx, podlogs.Source{Path: file.Path, Ended: file.Ended}, options, podlogs.Output{Stdout: out})
	if damaged > 0 {
		s.config.Log.Debug("skipped malformed log lines", "path", file.Path, "lines", damaged)
	}
	switch {
	case err == nil, options.Follow && ctx.Err() != nil:
	case errors.Is(err, errDisconnected), ctx.Err() != nil:
		abort()
	case !w.wrote:
		local.WriteText(w, http.StatusBadRequest, err.Error())
	default:
		s.config.Log.Warn("cannot read container log", "path", file.Path, "error", err)
		abort()
	}
}

// errDisconnected means that the client of a response has disconnected.
var errDisconnected = errors.New("client has disconnected")

// flushWriter flushes each write.
type flushWriter struct{ *deadlineWriter }

// Write implements io.Writer.
func (f flushWriter) Write(data []byte) (int, error) {
	n, err := f.deadlineWriter.Write(data)
	if err == nil {
		err = f.FlushError()
	}
	if err != nil {
		return n, fmt.Errorf("%w: %w", errDisconnected, err)
	}
	return n, nil
}

// podLogOptions parses a query like the API (the conversion from url.Values in
// pkg/apis/core/v1), and tail, the old name of tailLines.
func podLogOptions(query url.Values) (*v1.PodLogOptions, error) {
	if tail := query.Get("tail"); tail != "" {
		query["tailLines"] = []string{tail}
		if tail == "all" {
			delete(query, "tailLines")
		}
	}
	o := new(v1.PodLogOptions)
	for name, to := range map[string]*bool{"follow": &o.Follow, "previous": &o.Previous, "timestamps": &o.Timestamps} {
		values := query[name]
		if err := runtime.Convert_Slice_string_To_bool(&values, to, nil); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	for name, to := range map[string]**int64{"sinceSeconds": &o.SinceSeconds, "tailLines": &o.TailLines, "limitBytes": &o.LimitBytes} {
		values := query[name]
		if err := runtime.Convert_Slice_string_To_Pointer_int64(&values, to, nil); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	if values := query["sinceTime"]; len(values) > 0 {
		if err := metav1.Convert_Slice_string_To_Pointer_v1_Time(&values, &o.SinceTime, nil); err != nil {
			return nil, fmt.Errorf("sinceTime: %w", err)
		}
	}
	if values := query["stream"]; len(values) > 0 {
		o.Stream = &values[0]
	}
	return o, nil
}

// message formats an error of the options like the kubelet, and adds the reason.
func message(what string, err error) string {
	data, _ := json.Marshal(what + " " + err.Error()) // cannot fail for a string
	return `{"message": ` + string(data) + `}`
}

// logContainerID returns the ID, with scheme unless the status does not have the container
// yet, of the container whose log is requested
// (validateContainerLogStatus in pkg/kubelet/kubelet_pods.go): the running one,
// else the last one that ran, or with previous the one before. started is the ID,
// without scheme, of the running container. It is "" if only the status knows of
// one: the status may be updated minutes after the start.
func logContainerID(podName string, status *v1.PodStatus, name, started string, previous bool) (string, error) {
	c := pod.FindContainerStatus(status, name)
	if started != "" && !previous {
		if c != nil && bare(c.ContainerID) == started {
			return c.ContainerID, nil
		}
		return started, nil
	}
	if id := previousRun(c, started); id != "" {
		return id, nil
	}
	if c == nil {
		return "", fmt.Errorf("container %q in pod %q is not available", name, podName)
	}
	last := ""
	if t := c.LastTerminationState.Terminated; t != nil {
		last = t.ContainerID
	}
	switch {
	case previous:
		if last == "" {
			return "", fmt.Errorf("previous terminated container %q in pod %q not found", name, podName)
		}
		return last, nil
	case c.State.Running != nil:
		return c.ContainerID, nil
	case c.State.Terminated != nil && c.State.Terminated.ContainerID != "":
		return c.State.Terminated.ContainerID, nil
	case last != "":
		return last, nil
	case c.State.Terminated != nil, c.LastTerminationState.Terminated != nil:
		return "", fmt.Errorf("container %q in pod %q is terminated", name, podName)
	case c.State.Waiting == nil:
		return "", fmt.Errorf("container %q in pod %q is waiting to start - no logs yet", name, podName)
	}
	why := c.State.Waiting.Reason
	switch why {
	case "ErrImagePull":
		why = "image can't be pulled"
	case "ImagePullBackOff":
		why = "trying and failing to pull image"
	}
	return "", fmt.Errorf("container %q in pod %q is waiting to start: %s", name, podName, why)
}

// previousRun returns the ID of the container in the status if started is the ID of a
// newer container, and "" otherwise.
func previousRun(c *v1.ContainerStatus, started string) string {
	switch {
	case c == nil || started == "" || bare(c.ContainerID) == started:
		return ""
	case c.State.Running != nil:
		return c.ContainerID
	case c.State.Terminated != nil:
		return c.State.Terminated.ContainerID
	}
	return ""
}

// bare returns an ID without its scheme.
func bare(id string) string {
	if _, after, ok := strings.Cut(id, "://"); ok {
		return after
	}
	return id
}
