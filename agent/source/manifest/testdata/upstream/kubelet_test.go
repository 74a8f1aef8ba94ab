package upstream

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	podutil "k8s.io/kubernetes/pkg/api/pod"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/apis/core/validation"
	"k8s.io/kubernetes/pkg/kubelet/config"
)

// kubelet gives documents to the kubelet's own URL source, one after the other.
// The source polls: the request for the next document means that the previous one
// has been handled.
type kubelet struct {
	url       string
	documents chan []byte
	results   chan error
	updates   func() []*v1.Pod

	mu   sync.Mutex // guards busy and err
	busy bool
	err  error

	even bool // whether the next document gets a line end
}

// newKubelet starts a source, which never ends, and its server.
func newKubelet() *kubelet {
	k := &kubelet{documents: make(chan []byte), results: make(chan error, 1)}
	k.url = httptest.NewServer(k).URL
	k.updates = startSource(config.NewSourceURL, klog.New(sink{k}), k.url)
	return k
}

// startSource starts a source of the kubelet. It returns a function for the pods of
// the updates that have arrived since its last call. The type of an update is not
// exported.
func startSource[T any](source func(klog.Logger, string, http.Header, types.NodeName, time.Duration, chan<- T), logger klog.Logger, url string) func() []*v1.Pod {
	updates := make(chan T, 8)
	source(logger, url, nil, nodeName, time.Millisecond, updates)
	return func() (pods []*v1.Pod) {
		for {
			select {
			case update := <-updates:
				pods = append(pods, podsOf(update)...)
			default:
				return pods
			}
		}
	}
}

func podsOf(update any) []*v1.Pod {
	return reflect.ValueOf(update).FieldByName("Pods").Interface().([]*v1.Pod)
}

// ServeHTTP responds with the next document.
func (k *kubelet) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	k.mu.Lock()
	if k.busy {
		k.results <- k.err
	}
	k.busy, k.err = false, nil
	k.mu.Unlock()
	select {
	case document := <-k.documents:
		k.mu.Lock()
		k.busy = true
		k.mu.Unlock()
		_, _ = w.Write(document)
	case <-r.Context().Done():
	}
}

// parse returns the pods that the kubelet runs for a document, or the error that it
// logs.
func (k *kubelet) parse(document []byte) ([]*v1.Pod, error) {
	// The source ignores a document that equals the previous one: every other one
	// gets a line end.
	if k.even = !k.even; k.even {
		document = append(document[:len(document):len(document)], '\n')
	}
	k.documents <- document
	err := <-k.results
	pods := k.updates()
	if (err == nil) != (len(pods) > 0) {
		return nil, fmt.Errorf("%d pods with the error %v", len(pods), err)
	}
	return pods, err
}

// sink receives the log of the URL source.
type sink struct{ k *kubelet }

func (sink) Init(logr.RuntimeInfo)                 {}
func (sink) Enabled(int) bool                      { return true }
func (s sink) WithValues(...any) logr.LogSink      { return s }
func (s sink) WithName(string) logr.LogSink        { return s }
func (s sink) Error(err error, _ string, _ ...any) { s.fail(err) }

func (s sink) Info(_ int, message string, values ...any) {
	if !strings.HasPrefix(message, "Failed to read pods from URL") {
		return
	}
	for i := 0; i+1 < len(values); i += 2 {
		if err, ok := values[i+1].(error); ok && values[i] == "err" {
			s.fail(err)
		}
	}
}

func (s sink) fail(err error) {
	s.k.mu.Lock()
	defer s.k.mu.Unlock()
	if s.k.busy {
		s.k.err = err
	}
}

// upstreamErrors returns what the kubelet has against a document, as errors with a
// field. References to objects of the API, which the kubelet reports without a
// field, have the field "references".
func upstreamErrors(document []byte) (errs field.ErrorList, err error) {
	text, err := utilyaml.ToJSON(document)
	if err != nil {
		return nil, err
	}
	object, err := runtime.Decode(legacyscheme.Codecs.UniversalDecoder(), text)
	if err != nil {
		return nil, err
	}
	p, ok := object.(*core.Pod)
	if !ok {
		return nil, fmt.Errorf("%T is not a Pod", object)
	}
	if p.Name == "" {
		return nil, errors.New("the pod has no name")
	}
	p.Name += "-" + strings.ToLower(nodeName)
	if p.Namespace == "" {
		p.Namespace = metav1.NamespaceDefault
	}
	p.Spec.NodeName = nodeName
	options := podutil.GetValidationOptionsFromPodSpecAndMeta(&p.Spec, nil, &p.ObjectMeta, nil)
	errs = validation.ValidatePodCreate(p, options)
	refer := func(kind string) {
		errs = append(errs, field.Forbidden(field.NewPath(references), kind))
	}
	if _, kind, err := podutil.HasAPIObjectReference(p); err != nil {
		refer(err.Error())
	} else if kind != "" {
		refer(kind)
	}
	// The kubelet rejects these two also without the gate.
	if len(p.Spec.ResourceClaims) > 0 {
		refer(resourceClaims)
	}
	if slices.ContainsFunc(p.Spec.Volumes, hasTrustBundle) {
		refer(trustBundles)
	}
	return errs, nil
}

func hasTrustBundle(v core.Volume) bool {
	return v.Projected != nil && slices.ContainsFunc(v.Projected.Sources, func(source core.VolumeProjection) bool {
		return source.ClusterTrustBundle != nil
	})
}

// references is the field of errors for references to objects of the API, which
// these are.
const (
	references     = "references"
	resourceClaims = "resourceclaims"
	trustBundles   = "clustertrustbundles"
)
