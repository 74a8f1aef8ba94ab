package registration

import (
	"context"
	"sync"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
)

// Object is the Node as the API server has it. It exists before the Registrar, so that
// components that the Registrar needs can read it. Its methods are safe for concurrent use.
type Object struct {
	api     API
	name    string
	changed func(*v1.Node)

	storing sync.Mutex              // held during changed, so that its calls have the order of the stores
	node    atomic.Pointer[v1.Node] // last version from the server, nil until registered
}

// NewObject returns an Object that was not read yet. changed is called with the node each time
// it was created, read or patched, unless a newer version was stored during that request. Its
// calls do not overlap. It must not block.
func NewObject(api API, name string, changed func(*v1.Node)) *Object {
	return &Object{api: api, name: name, changed: changed}
}

// UID returns the UID of the Node at the API server, "" until the node is
// registered.
func (o *Object) UID() types.UID {
	if n := o.Node(); n != nil {
		return n.UID
	}
	return ""
}

// Node returns the last version of the node from the API server, nil until it is
// registered. It is shared and must not be modified.
func (o *Object) Node() *v1.Node { return o.node.Load() }

// Refresh reads the node from the API server. It blocks on the network, for at most 20 s.
func (o *Object) Refresh(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, refreshLimit)
	defer cancel()
	return o.read(ctx)
}

func (o *Object) read(ctx context.Context) error {
	before := o.Node()
	var n v1.Node
	if err := o.api.Get(ctx, apiclient.Nodes, "", o.name, &n); err != nil {
		return err
	}
	o.store(before, &n)
	return nil
}

// store stores the response to a request. before is what was stored when the request began.
// A response that is older than the one of another request meanwhile is dropped. Without such
// a request versions are not compared: they decrease when a server is restored from a backup.
func (o *Object) store(before, n *v1.Node) {
	n.ManagedFields = nil
	o.storing.Lock()
	defer o.storing.Unlock()
	if last := o.Node(); last != before && older(n, last) {
		return
	}
	o.node.Store(n)
	o.changed(n)
}

// older reports whether n is an older version of the same node than last.
func older(n, last *v1.Node) bool {
	order, err := resourceversion.CompareResourceVersion(n.ResourceVersion, last.ResourceVersion)
	return err == nil && order < 0 && n.UID == last.UID
}
