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
	"k8s.io/apimachinery/pkg/watch"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
)

// page is how many objects are asked for at once: what is not kept of them is
// in memory together.
const page = 100

// refusedFirst and refusedMax bound the waits while the server refuses: that a
// person has granted it has to be noticed, and until then each try costs bytes.
const (
	refusedFirst = 5 * time.Second
	refusedMax   = 2 * time.Minute
)

var errVersion = errors.New("the server's list has no resource version")

// API is what a Follower asks of an API server, as *apiclient.Client does it.
type API interface {
	List(ctx context.Context, r apiclient.Resource, namespace string, options metav1.ListOptions, into runtime.Object) error
	Watch(ctx context.Context, r apiclient.Resource, namespace string, options metav1.ListOptions) (watch.Interface, error)
}

// Key is an object's namespace and name.
type Key struct{ Namespace, Name string }

// Config is what a Follower needs. T is what is kept of an object.
type Config[T any] struct {
	API      API
	Resource apiclient.Resource
	// List makes an empty list of the resource.
	List func() runtime.Object
	// Labels and Fields select the objects; "" is all.
	Labels, Fields string
	// Keep picks what is kept of an object, and must not hold on to it; false
	// leaves the object out.
	Keep func(o runtime.Object) (T, bool)
	// Same says that nothing has changed that matters.
	Same func(a, b T) bool
	// Changed is called after something has, and after the first list. It must
	// not block.
	Changed func()
	// Remedy is what a person can do where the server refuses; it ends the
	// message.
	Remedy string
	// Recovered ends waits when the server is there again; nil does not.
	Recovered apiclient.Recoveries
	// Refused is told when the server begins to refuse, with a text for people,
	// and of the end by "". It may be nil.
	Refused func(text string)
	Log     *slog.Logger
}

// Follower follows the objects of a resource. All methods may be called at
// once; Run only once.
type Follower[T any] struct {
	cfg    Config[T]
	outage *apiclient.Outage

	mu      sync.Mutex
	known   bool // the first list is there
	objects map[Key]T
	problem string

	// Of Run alone.
	version     string // to go on from; "" is nowhere
	torn        string // where a watch broke off in the middle of an event
	wait, await apiclient.Backoff
}

// New makes a Follower; nothing is asked yet.
func New[T any](cfg Config[T]) (*Follower[T], error) {
	if cfg.API == nil || cfg.List == nil || cfg.Keep == nil || cfg.Same == nil || cfg.Changed == nil || cfg.Log == nil {
		return nil, fmt.Errorf("follow %s: an API server, what is kept and a log are needed", cfg.Resource)
	}
	return &Follower[T]{
		cfg: cfg,
		outage: apiclient.NewOutage(cfg.Log, cfg.Resource.String()+" of the cluster cannot be followed; what is known of them stays",
			cfg.Resource.String()+" of the cluster are followed again"),
		await: apiclient.Backoff{First: refusedFirst, Max: refusedMax},
	}, nil
}

// View calls see with what is known of all objects, which it must neither
// change nor keep, and says whether anything is known at all: without a list,
// see is not called.
func (f *Follower[T]) View(see func(objects map[Key]T)) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.known {
		see(f.objects)
	}
	return f.known
}

// Problem is that the server refuses, with what helps; "" is nothing.
func (f *Follower[T]) Problem() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.problem
}

// Run follows until ctx ends; its error is ctx's cause.
func (f *Follower[T]) Run(ctx context.Context) error {
	for {
		again := f.cfg.Recovered.Next()
		err := f.round(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		wait := &f.wait
		if !errors.Is(err, errOver) {
			f.trouble(err)
			if apierrors.IsForbidden(err) {
				wait = &f.await
			}
		}
		if !wait.Wait(ctx, again) {
			return context.Cause(ctx)
		}
	}
}

// round lists if need be, and watches once. Its error is never nil, but errOver
// if all is well.
func (f *Follower[T]) round(ctx context.Context) error {
	if f.version == "" {
		if err := f.list(ctx); err != nil {
			return err
		}
	}
	err := f.watch(ctx)
	if expired(err) {
		return errOver // so do watches go on after an outage
	}
	return err
}

func (f *Follower[T]) options() metav1.ListOptions {
	return metav1.ListOptions{LabelSelector: f.cfg.Labels, FieldSelector: f.cfg.Fields}
}

// list reads all objects, page by page.
func (f *Follower[T]) list(ctx context.Context) error {
	objects := make(map[Key]T)
	options := f.options()
	options.Limit = page
	for {
		list := f.cfg.List()
		if err := f.cfg.API.List(ctx, f.cfg.Resource, metav1.NamespaceAll, options, list); err != nil {
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

// listed makes a list the truth.
func (f *Follower[T]) listed(version string, objects map[Key]T) error {
	if version == "" || version == "0" {
		return fmt.Errorf("list %s: %w", f.cfg.Resource, errVersion)
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

// trouble notes that the server does not do it.
func (f *Follower[T]) trouble(err error) {
	if !apierrors.IsForbidden(err) {
		f.outage.Note(err)
		return
	}
	text := fmt.Sprintf("%v: %s", err, f.cfg.Remedy)
	if f.said(text) {
		f.cfg.Log.Warn("the API server refuses what this node is to follow", "error", err, "remedy", f.cfg.Remedy)
		f.refused(text)
	}
}

// well notes that a watch works. A list alone does not say so: a server that
// lists but does not let watch must not be listed every second.
func (f *Follower[T]) well() {
	f.wait.Reset()
	f.await.Reset()
	f.torn = ""
	f.outage.Note(nil)
	if f.said("") {
		f.cfg.Log.Info("the API server no longer refuses what this node is to follow", "resource", f.cfg.Resource.String())
		f.refused("")
	}
}

// said remembers that the server refuses, or not, and says whether that is
// news.
func (f *Follower[T]) said(text string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	news := (text == "") != (f.problem == "")
	if news {
		f.problem = text
	}
	return news
}

func (f *Follower[T]) refused(text string) {
	if f.cfg.Refused != nil {
		f.cfg.Refused(text)
	}
}
