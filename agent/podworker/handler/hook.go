package handler

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/wait"
)

// errSleepInterrupted means that ctx ended before a hook's sleep did. The text is
// upstream's.
var errSleepInterrupted = errors.New("container terminated before sleep hook finished")

// Hook runs the action of a lifecycle hook. It blocks until the action or ctx
// ends. An HTTP request succeeds with any response. The error of a command is an
// *ExitError, or the runtime's error. note is not empty if the hook succeeded in
// a way that should be reported.
func (r *Runner) Hook(ctx context.Context, h *v1.LifecycleHandler, t Target) (note string, err error) {
	switch {
	case h.Exec != nil:
		// Not expanded: upstream expands the commands of probes only.
		_, err := r.run(ctx, t.ContainerID, h.Exec.Command, 0)
		return "", err
	case h.HTTPGet != nil:
		return r.hookHTTP(ctx, h.HTTPGet, &t)
	case h.Sleep != nil:
		if !wait.Pause(ctx, time.Duration(min(max(h.Sleep.Seconds, 0), maxSleepSeconds))*time.Second) {
			return "", errSleepInterrupted
		}
		return "", nil
	}
	// This includes tcpSocket: the API accepts it, but no node runs it.
	return "", errNoHandler
}

// hookHTTP makes the request of a hook. If the server answers an HTTPS request
// with plain HTTP, hookHTTP retries with HTTP (runHTTPHandler in
// pkg/kubelet/lifecycle/handlers.go).
func (r *Runner) hookHTTP(ctx context.Context, a *v1.HTTPGetAction, t *Target) (note string, err error) {
	req, err := newRequest(ctx, a, t, "lifecycle")
	if err != nil {
		return "", err
	}
	err = r.doRequest(req)
	if !errors.Is(err, http.ErrSchemeMismatch) {
		return "", err
	}
	plain := req.Clone(ctx)
	plain.URL.Scheme = "http"
	plain.Header.Del("Authorization")
	if r.doRequest(plain) != nil {
		return "", err
	}
	return fmt.Sprintf("request to HTTPS lifecycle hook %s got HTTP response, retry with HTTP succeeded", req.URL.Host), nil
}

// doRequest makes a request. Any response is a success.
func (r *Runner) doRequest(req *http.Request) error {
	client := http.Client{Transport: r.transport, CheckRedirect: checkRedirect}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	if resp.ContentLength <= maxOutput { // or unknown: the server may still be writing
		_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxOutput))
	}
	_ = resp.Body.Close()
	return nil
}

// maxSleepSeconds is one year. It keeps the value of a hostile hook from
// overflowing time.Duration.
const maxSleepSeconds = 365 * 24 * 3600
