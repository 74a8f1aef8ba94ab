package handler

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
)

// maxRedirects is the maximum number of redirects that are followed.
const maxRedirects = 10

// newRequest returns the request of an httpGet action (NewRequestForHTTPGetAction in
// pkg/probe/http/request.go).
func newRequest(ctx context.Context, a *v1.HTTPGetAction, t *Target, purpose string) (*http.Request, error) {
	address, err := t.address(a.Host, a.Port)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(a.Path)
	if err != nil {
		u = &url.URL{Path: a.Path} // as upstream: the pod is already admitted
	}
	u.Scheme, u.Host = "http", address
	if a.Scheme != "" {
		u.Scheme = strings.ToLower(string(a.Scheme))
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("create request: %w", err)
	}
	setHeaders(req, a.HTTPHeaders, purpose)
	return req, nil
}

// setHeaders sets the manifest's headers, and default User-Agent and Accept
// headers if it does not set them. An empty Accept means no header.
func setHeaders(req *http.Request, headers []v1.HTTPHeader, purpose string) {
	for _, h := range headers {
		req.Header.Add(h.Name, h.Value)
	}
	if _, ok := req.Header["User-Agent"]; !ok {
		req.Header.Set("User-Agent", userAgent(purpose))
	}
	if _, ok := req.Header["Accept"]; !ok {
		req.Header.Set("Accept", "*/*")
	} else if req.Header.Get("Accept") == "" {
		req.Header.Del("Accept")
	}
	req.Host = req.Header.Get("Host")
}

// checkRedirect is a CheckRedirect function that does not follow a redirect to another
// host. The redirect is then the response.
func checkRedirect(req *http.Request, via []*http.Request) error {
	if req.URL.Hostname() != via[0].URL.Hostname() {
		return http.ErrUseLastResponse
	}
	if len(via) >= maxRedirects {
		return errors.New("stopped after 10 redirects")
	}
	return nil
}

// probeHTTP succeeds if the response's status is from 200 to 399. A body that
// cannot be read gives no result. The body of a redirect is reported only if host
// is not set, so that the pod itself has answered. With host set, the author of
// the probe could read what other servers answer to the node.
func (r *Runner) probeHTTP(ctx context.Context, a *v1.HTTPGetAction, t *Target, timeout time.Duration) (Result, error) {
	req, err := newRequest(ctx, a, t, "probe")
	if err != nil {
		return Result{}, err
	}
	client := http.Client{Transport: r.transport, CheckRedirect: checkRedirect, Timeout: timeout}
	resp, err := client.Do(req)
	if err != nil {
		return Result{Status: Failure, Output: err.Error()}, nil
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxOutput))
	if err != nil {
		return Result{Status: Failure}, fmt.Errorf("read response: %w", err)
	}
	switch code := resp.StatusCode; {
	case code >= http.StatusMultipleChoices && code < http.StatusBadRequest:
		if a.Host != "" {
			return Result{Status: Warning, Output: "Probe terminated redirects"}, nil
		}
		return Result{Status: Warning, Output: "Probe terminated redirects, Response body: " + string(body)}, nil
	case code >= http.StatusOK && code < http.StatusBadRequest:
		return Result{Status: Success}, nil
	}
	// The body is not reported: it may come from anywhere (kubernetes issue 99425).
	return Result{Status: Failure, Output: fmt.Sprintf("HTTP probe failed with statuscode: %d", resp.StatusCode)}, nil
}
