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

// maxRedirects is how often a redirect is followed.
const maxRedirects = 10

var errRedirects = errors.New("stopped after 10 redirects")

// request makes the request that a manifest asks for (NewRequestForHTTPGetAction
// in pkg/probe/http/request.go).
func request(ctx context.Context, a *v1.HTTPGetAction, t *Target, purpose string) (*http.Request, error) {
	port, err := portOf(a.Port, t.Container)
	if err != nil {
		return nil, err
	}
	address, err := t.address(a.Host, port)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(a.Path)
	if err != nil {
		u = &url.URL{Path: a.Path} // as upstream: it is too late to refuse it
	}
	u.Scheme, u.Host = "http", address
	if a.Scheme != "" {
		u.Scheme = strings.ToLower(string(a.Scheme))
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	setHeaders(req, a.HTTPHeaders, purpose)
	return req, nil
}

// setHeaders sets the manifest's headers and what stands for those that it
// does not have. An empty Accept is none.
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

// sameHost stops at a redirect to another host: the response that says so is
// the last.
func sameHost(req *http.Request, via []*http.Request) error {
	if req.URL.Hostname() != via[0].URL.Hostname() {
		return http.ErrUseLastResponse
	}
	if len(via) >= maxRedirects {
		return errRedirects
	}
	return nil
}

// probeHTTP succeeds when the answer's status is from 200 to 399. A body that
// breaks off gives no result. The body of a redirect is told only where the
// pod itself answered: with host set, the probe's author could read what other
// servers say to the node.
func (r *Runner) probeHTTP(ctx context.Context, a *v1.HTTPGetAction, t *Target, timeout time.Duration) (Result, error) {
	req, err := request(ctx, a, t, "probe")
	if err != nil {
		return Result{}, err
	}
	client := http.Client{Transport: r.transport, CheckRedirect: sameHost, Timeout: timeout}
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
	// The body is not told: it may come from anywhere (kubernetes issue 99425).
	return Result{Status: Failure, Output: fmt.Sprintf("HTTP probe failed with statuscode: %d", resp.StatusCode)}, nil
}
