package apiclient

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

// Config configures a Client.
type Config struct {
	// Server is the API server's URL: https, or http on loopback.
	Server string
	// CA holds the CA certificates in PEM that verify the server's certificate; nil
	// means the system's.
	CA []byte
	// ServerName is the expected name in the server's certificate; "" means the
	// host of the URL.
	ServerName string
	// Insecure disables the verification of the server's certificate, as
	// insecure-skip-tls-verify of a kubeconfig does.
	Insecure bool
	// Certificate returns the client certificate for a new connection; nil means
	// none. After a change of the certificate, call Reconnect.
	Certificate func() (*tls.Certificate, error)
	// Token returns the bearer token for each request; nil or "" sends none. It
	// must not block on the network.
	Token func() (string, error)
	// Ready is called before each new connection. It blocks until one may be made,
	// such as until the clock is plausible for certificates, or until ctx ends; nil
	// does not block.
	Ready func(ctx context.Context) error
	// Proxy returns the proxy of a request; nil means the proxy of the environment.
	Proxy func(*http.Request) (*url.URL, error)
	// UserAgent identifies the client in the server's logs.
	UserAgent string
	// PingAfter is how long the server may send nothing before it is pinged; 0
	// means 15 s.
	PingAfter time.Duration
	// Meter counts the bytes on the wire; nil means a private Meter.
	Meter *Meter
}

// Client sends requests to one API server. Its methods may be called concurrently.
// Those with a context block until the server answers, a time limit is exceeded or the
// context ends. They wrap errors of k8s.io/apimachinery/pkg/api/errors for error
// statuses of the server.
type Client struct {
	Requester
	clients   map[schema.GroupVersion]*rest.RESTClient
	transport *transport
}

// API has the methods of a Requester. They are called concurrently. Implementations of tests
// need no network.
type API interface {
	Get(ctx context.Context, r Resource, namespace, name string, into runtime.Object) error
	List(ctx context.Context, r Resource, namespace string, options metav1.ListOptions, into runtime.Object) error
	Watch(ctx context.Context, r Resource, namespace string, options metav1.ListOptions) (watch.Interface, error)
	Create(ctx context.Context, r Resource, namespace, name, subresource string, object, into runtime.Object) error
	Patch(ctx context.Context, r Resource, namespace, name, subresource string, kind types.PatchType, patch []byte, into runtime.Object) error
	Delete(ctx context.Context, r Resource, namespace, name string, options metav1.DeleteOptions) error
}

// Requester sends requests with a client that may not exist yet. A request waits for
// the client until its context ends. Errors are those of the function that returns the
// client, or of the request.
type Requester struct {
	client func(ctx context.Context) (*Client, error)
}

// Deferred returns a Requester for the client that a function returns. The function
// blocks until there is one or ctx ends.
func Deferred(client func(ctx context.Context) (*Client, error)) Requester { return Requester{client} }

// New validates the configuration and returns a Client. It does not connect.
func New(c Config) (*Client, error) {
	server, err := serverURL(c.Server)
	if err != nil {
		return nil, err
	}
	t, err := newTransport(&c, server)
	if err != nil {
		return nil, err
	}
	codecs := newCodecs()
	client := &Client{transport: t, clients: make(map[schema.GroupVersion]*rest.RESTClient, len(kinds))}
	client.Requester = Deferred(func(context.Context) (*Client, error) { return client, nil })
	for group := range kinds {
		root := "apis/" + group.String()
		if group.Group == "" {
			root = "api/" + group.Version
		}
		client.clients[group], err = rest.NewRESTClient(server, root, rest.ClientContentConfig{
			ContentType:        runtime.ContentTypeProtobuf,
			AcceptContentTypes: runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON,
			GroupVersion:       group,
			Negotiator:         runtime.NewClientNegotiator(codecs, group),
		}, nil, &http.Client{Transport: t, CheckRedirect: noRedirect})
		if err != nil {
			return nil, fmt.Errorf("create client for API server %s: %w", server, err)
		}
	}
	return client, nil
}

// StatusCode returns the code of an error status of the server, 0 if err is another error.
func StatusCode(err error) int {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return 0
	}
	return int(status.Status().Code)
}

// noRedirect rejects redirects: no API server redirects, and the client certificate
// must not be presented to another host.
func noRedirect(*http.Request, []*http.Request) error {
	return errors.New("unexpected redirect from API server")
}

// Get reads one object into into.
func (q Requester) Get(ctx context.Context, r Resource, namespace, name string, into runtime.Object) error {
	return q.do(ctx, "get", r, namespace, name, into, (*rest.RESTClient).Get)
}

// List reads the objects that options select into the list into.
func (q Requester) List(ctx context.Context, r Resource, namespace string, options metav1.ListOptions, into runtime.Object) error {
	return q.do(ctx, "list", r, namespace, "", into, func(rc *rest.RESTClient) *rest.Request {
		return withOptions(rc.Get(), &options)
	})
}

// Create creates an object and reads the result into into, which may be nil. With a
// subresource, name is the parent object. Otherwise name is "", and the object has
// the name.
func (q Requester) Create(ctx context.Context, r Resource, namespace, name, subresource string, object, into runtime.Object) error {
	return q.do(ctx, "create", r, namespace, name, into, func(rc *rest.RESTClient) *rest.Request {
		return rc.Post().SubResource(subresource).Body(object) // "" sets none
	})
}

// Patch patches an object or its subresource ("" means the object), and reads the
// result into into, which may be nil.
func (q Requester) Patch(ctx context.Context, r Resource, namespace, name, subresource string, kind types.PatchType, patch []byte, into runtime.Object) error {
	return q.do(ctx, "patch", r, namespace, name, into, func(rc *rest.RESTClient) *rest.Request {
		return rc.Patch(kind).SubResource(subresource).Body(patch)
	})
}

// Delete deletes an object.
func (q Requester) Delete(ctx context.Context, r Resource, namespace, name string, options metav1.DeleteOptions) error {
	return q.do(ctx, "delete", r, namespace, name, nil, func(rc *rest.RESTClient) *rest.Request {
		return rc.Delete().Body(&options)
	})
}

// Watch watches the objects that options select until ctx ends, the server ends the
// watch, or the caller stops it. The caller must stop it.
func (q Requester) Watch(ctx context.Context, r Resource, namespace string, options metav1.ListOptions) (watch.Interface, error) {
	c, err := q.client(ctx)
	if err != nil {
		return nil, err
	}
	options.Watch = true
	ctx = context.WithValue(ctx, purposeKey{}, purpose{"watch", r.name})
	request := address(withOptions(c.clients[r.group].Get(), &options), r, namespace, "")
	if options.TimeoutSeconds != nil {
		request = request.Timeout(time.Duration(*options.TimeoutSeconds) * time.Second)
	}
	w, err := request.Watch(ctx)
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", r, err)
	}
	return w, nil
}

// Raw returns the response body of a GET of a path, such as /version.
func (c *Client) Raw(ctx context.Context, path string) ([]byte, error) {
	ctx = context.WithValue(ctx, purposeKey{}, purpose{"get", path})
	data, err := c.clients[Pods.group].Get().AbsPath(path).WarningHandlerWithContext(rest.NoWarnings{}).DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", path, err)
	}
	return data, nil
}

// do sends the request that begin returns. into may be nil.
func (q Requester) do(ctx context.Context, verb string, r Resource, namespace, name string, into runtime.Object, begin func(*rest.RESTClient) *rest.Request) error {
	c, err := q.client(ctx)
	if err != nil {
		return err
	}
	ctx = context.WithValue(ctx, purposeKey{}, purpose{verb, r.name})
	result := address(begin(c.clients[r.group]), r, namespace, name).Do(ctx)
	if into == nil {
		err = result.Error()
	} else {
		err = result.Into(into)
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", verb, path.Join(r.name, namespace, name), err)
	}
	return nil
}

// address sets the namespace, resource and name of a request. An empty name means all
// objects, or a new one.
func address(request *rest.Request, r Resource, namespace, name string) *rest.Request {
	request = request.NamespaceIfScoped(namespace, namespace != "").Resource(r.name).WarningHandlerWithContext(rest.NoWarnings{})
	if name != "" {
		request = request.Name(name)
	}
	return request
}

func withOptions(request *rest.Request, options *metav1.ListOptions) *rest.Request {
	return request.SpecificallyVersionedParams(options, metav1.ParameterCodec, metav1.SchemeGroupVersion)
}
