//go:build cluster

package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"
)

// namespace is where the tests' objects are.
const namespace = "/namespaces/default/"

// rest sends a request to the API server, as the administrator, without
// kubectl: some come many times a second. The answer is decoded into out
// unless that is nil. It answers the status code, and fails the test on those
// that are neither good nor wanted.
func (l lab) rest(method, path string, in, out any, wanted ...int) int {
	l.Helper()
	ctx, cancel := context.WithTimeout(l.Context(), 30*time.Second)
	defer cancel()
	code, answer, err := l.ask(ctx, method, path, in)
	if err != nil {
		l.Fatal(err)
	}
	for _, w := range wanted {
		if code == w {
			return code
		}
	}
	if code >= http.StatusMultipleChoices {
		l.Fatalf("%s %s: %d %s", method, path, code, answer)
	}
	if out != nil {
		if err := json.Unmarshal(answer, out); err != nil {
			l.Fatalf("read the answer to %s %s: %v", method, path, err)
		}
	}
	return code
}

func (l lab) ask(ctx context.Context, method, path string, in any) (code int, answer []byte, err error) {
	var body io.Reader
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			return 0, nil, err
		}
		body = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, l.c.Server()+path, body)
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		req.Header.Set("Content-Type", "application/merge-patch+json")
	}
	res, err := l.c.Client().Do(req)
	if err != nil {
		return 0, nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	defer res.Body.Close()
	answer, err = io.ReadAll(res.Body)
	return res.StatusCode, answer, err
}
