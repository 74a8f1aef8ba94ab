package handler

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	v1 "k8s.io/api/core/v1"
)

// errSleepCut says that a hook's sleep did not come to its end.
var errSleepCut = errors.New("container terminated before sleep hook finished")

// Hook runs a lifecycle hook's action. It blocks until the action has ended
// or ctx has. The answer to an HTTP request does not matter, only that there
// is one; the error of a command is an *ExitError, or what the runtime said.
// note is not empty when somebody should be told how it went although it
// went well.
func (r *Runner) Hook(ctx context.Context, h *v1.LifecycleHandler, t Target) (note string, err error) {
	switch {
	case h.Exec != nil:
		// Not expanded: upstream expands the commands of probes only.
		_, err := r.run(ctx, t.ContainerID, h.Exec.Command, 0)
		return "", err
	case h.HTTPGet != nil:
		return r.hookHTTP(ctx, h.HTTPGet, &t)
	case h.Sleep != nil:
		return "", sleep(ctx, h.Sleep.Seconds)
	}
	// A tcpSocket hook too: the API lets it pass, and nothing runs it.
	return "", errNoHandler
}

// hookHTTP tries HTTP where an HTTPS hook meets a server that speaks only
// that (runHTTPHandler in pkg/kubelet/lifecycle/handlers.go).
func (r *Runner) hookHTTP(ctx context.Context, a *v1.HTTPGetAction, t *Target) (note string, err error) {
	req, err := request(ctx, a, t, "lifecycle")
	if err != nil {
		return "", err
	}
	err = r.get(req)
	if !errors.Is(err, http.ErrSchemeMismatch) {
		return "", err
	}
	plain := req.Clone(ctx)
	plain.URL.Scheme = "http"
	plain.Header.Del("Authorization")
	if r.get(plain) != nil {
		return "", err
	}
	return fmt.Sprintf("request to HTTPS lifecycle hook %s got HTTP response, retry with HTTP succeeded", req.URL.Host), nil
}

// get makes a request of which only the answer's coming counts.
func (r *Runner) get(req *http.Request) error {
	client := http.Client{Transport: r.transport, CheckRedirect: sameHost}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	if resp.ContentLength <= maxOutput { // or not known: the server may still be at work
		_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxOutput))
	}
	_ = resp.Body.Close()
	return nil
}

// maxSleepSeconds keeps a hostile hook inside time.Duration: one year.
const maxSleepSeconds = 365 * 24 * 3600

func sleep(ctx context.Context, seconds int64) error {
	timer := time.NewTimer(time.Duration(min(max(seconds, 0), maxSleepSeconds)) * time.Second)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return errSleepCut
	}
}
