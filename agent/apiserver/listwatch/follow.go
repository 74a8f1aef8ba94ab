package listwatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
	"github.com/tinylet/tinylet/agent/wait"
)

// page is the page size of a list, which bounds the whole objects in memory, except after
// a continue token has expired.
const page = 100

// refusedFirst and refusedMax are the upper bounds of the first and of the longest wait
// while the API server answers Forbidden. A new grant must be detected, but each attempt
// costs bytes.
const (
	refusedFirst = 5 * time.Second
	refusedMax   = 2 * time.Minute
)

// Key is an object's namespace and name.
type Key struct{ Namespace, Name string }

// Config configures a Reflector. T is the part of an object that is kept. API, List,
// Keep, Same, Changed and Log are required.
type Config[T any] struct {
	API      apiclient.API
	Resource apiclient.Resource
	// List returns an empty list of the resource.
	List func() runtime.Object
	// Labels and Fields are the label and field selector; "" selects all.
	Labels, Fields string
	// Keep returns the part of o to keep, and must not retain o. It returns false
	// to drop the object.
	Keep func(o runtime.Object) (T, bool)
	// Same reports whether a and b do not differ in anything relevant. It is called with
	// the lock held.
	Same func(a, b T) bool
	// Changed is called after a relevant change and after the first list. It must
	// not block.
	Changed func()
	// Remedy is what an operator must do if the API server answers Forbidden. It ends the
	// text of Problem.
	Remedy string
	// Recovered ends waits when the API server answers again; nil does not.
	Recovered apiclient.Recoveries
	// OnForbidden is called with a text for operators at the first Forbidden; nil ignores it.
	OnForbidden func(text string)
	Log         *slog.Logger
}

// Reflector lists and watches the objects of a resource. Its methods may be called
// concurrently; Run may be called only once.
type Reflector[T any] struct {
	cfg    Config[T]
	outage *apiclient.Outage

	mu      sync.Mutex
	known   bool // the first list is complete
	objects map[Key]T
	problem string

	// Owned by Run.
	version     string // resource version to watch from; "" means list first
	torn        string // resource version at which the event stream last broke
	wait, await wait.Backoff
}

// New returns a Reflector. It sends no request.
func New[T any](cfg Config[T]) (*Reflector[T], error) {
	if cfg.API == nil || cfg.List == nil || cfg.Keep == nil || cfg.Same == nil || cfg.Changed == nil || cfg.Log == nil {
		return nil, fmt.Errorf("listwatch %s: API, List, Keep, Same, Changed and Log are required", cfg.Resource)
	}
	return &Reflector[T]{
		cfg: cfg,
		outage: apiclient.NewOutage(cfg.Log.With("resource", cfg.Resource.String()),
			"cannot list and watch resource", "listing and watching resource again"),
		await: wait.Backoff{First: refusedFirst, Max: refusedMax},
	}, nil
}

// View calls see with the current objects and reports whether the first list is
// complete; before that, see is not called. see must neither change nor retain the
// map, and runs with the lock held.
func (f *Reflector[T]) View(see func(objects map[Key]T)) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.known {
		see(f.objects)
	}
	return f.known
}

// Problem returns the first Forbidden of the API server with the remedy; "" means none.
func (f *Reflector[T]) Problem() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.problem
}

// Run lists and watches until ctx ends, and returns the cause of ctx.
func (f *Reflector[T]) Run(ctx context.Context) error {
	for {
		again := f.cfg.Recovered.Next()
		err := f.round(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		wait := &f.wait
		if !errors.Is(err, ErrEnded) {
			f.handleError(err)
			if apierrors.IsForbidden(err) {
				wait = &f.await
			}
		}
		if !wait.Wait(ctx, again) {
			return context.Cause(ctx)
		}
	}
}

// round lists if necessary, and watches once. Its error is never nil. ErrEnded means
// that nothing failed, or that the resource version has expired and a list is next.
func (f *Reflector[T]) round(ctx context.Context) error {
	if f.version == "" {
		if err := f.list(ctx); err != nil {
			return err
		}
	}
	err := f.watch(ctx)
	if Expired(err) {
		return ErrEnded // normal after an outage
	}
	return err
}

func (f *Reflector[T]) options() metav1.ListOptions {
	return metav1.ListOptions{LabelSelector: f.cfg.Labels, FieldSelector: f.cfg.Fields}
}

// list reads all objects page by page. If the continue token of a page has expired (410),
// because the pages before took longer than the API server keeps old versions, it reads
// all objects in one response: pages would take as long again.
func (f *Reflector[T]) list(ctx context.Context) error {
	objects := make(map[Key]T)
	options := f.options()
	options.Limit = page
	for {
		list := f.cfg.List()
		err := f.cfg.API.List(ctx, f.cfg.Resource, metav1.NamespaceAll, options, list)
		if Expired(err) && options.Continue != "" {
			clear(objects)
			options.Continue, options.Limit = "", 0
			continue
		}
		if err != nil {
			return err
		}
		head, err := meta.ListAccessor(list)
		if err != nil {
			return fmt.Errorf("list %s: %w", f.cfg.Resource, err)
		}
		err = meta.EachListItem(list, func(o runtime.Object) error {
			if key, ok := keyOf(o); ok {
				if kept, ok := f.cfg.Keep(o); ok {
					objects[key] = kept
				}
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("list %s: %w", f.cfg.Resource, err)
		}
		options.Continue = head.GetContinue()
		if options.Continue == "" {
			return f.listed(head.GetResourceVersion(), objects)
		}
	}
}

func keyOf(o runtime.Object) (Key, bool) {
	m, err := meta.Accessor(o)
	if err != nil || m.GetName() == "" {
		return Key{}, false
	}
	return Key{m.GetNamespace(), m.GetName()}, true
}

// listed replaces the objects by those of a complete list.
func (f *Reflector[T]) listed(version string, objects map[Key]T) error {
	if version == "" || version == "0" {
		return fmt.Errorf("list %s: list has no resource version", f.cfg.Resource)
	}
	f.version = version
	f.mu.Lock()
	changed := !f.known || len(objects) != len(f.objects)
	for key, now := range objects {
		was, there := f.objects[key]
		changed = changed || !there || !f.cfg.Same(was, now)
	}
	f.known, f.objects = true, objects
	f.mu.Unlock()
	if changed {
		f.cfg.Changed()
	}
	return nil
}

func (f *Reflector[T]) handleError(err error) {
	if !apierrors.IsForbidden(err) {
		f.outage.Record(err)
		return
	}
	text := fmt.Sprintf("%v: %s", err, f.cfg.Remedy)
	if f.said(text) {
		f.cfg.Log.Warn("API server forbids list or watch", "error", err, "remedy", f.cfg.Remedy)
		if f.cfg.OnForbidden != nil {
			f.cfg.OnForbidden(text)
		}
	}
}

// handleSuccess is called when a watch works. A successful list is not enough: an API
// server that permits list but not watch must not be listed every second.
func (f *Reflector[T]) handleSuccess() {
	f.wait.Reset()
	f.await.Reset()
	f.torn = ""
	f.outage.Record(nil)
	if f.said("") {
		f.cfg.Log.Info("API server permits list and watch again", "resource", f.cfg.Resource.String())
	}
}

// said stores the text of a refusal, "" for none, and reports whether a refusal began or
// ended. The text of a refusal does not change until it ends.
func (f *Reflector[T]) said(text string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	news := (text == "") != (f.problem == "")
	if news {
		f.problem = text
	}
	return news
}
