//go:build cluster

package controlplane

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"
)

// CompactStore has etcd forget all revisions but the present one: whoever goes
// on from an earlier one has to begin again. The API server still has the last
// changes of its own, until it is restarted.
func (c *Cluster) CompactStore(t *testing.T) {
	t.Helper()
	var now struct {
		Header struct {
			Revision int64 `json:"revision,string"`
		} `json:"header"`
	}
	key := []byte("/registry/health") // any: only the header is of interest
	if err := c.askStore(t.Context(), "kv/range", map[string]any{"key": key, "count_only": true}, &now); err != nil {
		t.Fatal(err)
	}
	request := map[string]any{"revision": now.Header.Revision, "physical": true}
	if err := c.askStore(t.Context(), "kv/compaction", request, &struct{}{}); err != nil {
		t.Fatal(err)
	}
	t.Logf("etcd is compacted at revision %d", now.Header.Revision)
}

// askStore asks etcd by its gateway for JSON.
func (c *Cluster) askStore(ctx context.Context, method string, request, answer any) error {
	said := func(err error) error { return fmt.Errorf("ask etcd for %s: %w", method, err) }
	body, err := json.Marshal(request)
	if err != nil {
		return said(err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, storeURL+"/v3/"+method, bytes.NewReader(body))
	if err != nil {
		return said(err)
	}
	res, err := c.client.Do(req)
	if err != nil {
		return said(err)
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		return said(err)
	}
	if res.StatusCode != http.StatusOK {
		return said(fmt.Errorf("%s: %s", res.Status, data))
	}
	if err := json.Unmarshal(data, answer); err != nil {
		return said(err)
	}
	return nil
}
