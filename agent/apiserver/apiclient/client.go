package apiclient

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

// Config is what a Client needs.
type Config struct {
	// Server is the API server's URL: https, or http on loopback.
	Server string
	// CA are the certificates in PEM that the server's has to lead to; nil
	// are the system's.
	CA []byte
	// ServerName is the name that the server's certificate has to have; "" is
	// the URL's.
	ServerName string
	// Insecure takes any certificate of the server for good, as
	// insecure-skip-tls-verify of a kubeconfig asks for.
	Insecure bool
	// Certificate answers the certificate that the client shows on a new
	// connection; nil shows none. After a change of identity, Reconnect.
	Certificate func() (*tls.Certificate, error)
	// Token answers the bearer token that goes with each request; nil or ""
	// sends none. It must not block.
	Token func() (string, error)
	// Ready blocks until it makes sense to connect, such as until the clock
	// can judge certificates, or until ctx ends; nil does not block.
	Ready func(ctx context.Context) error
	// Proxy answers the proxy of a request; nil asks the environment.
	Proxy func(*http.Request) (*url.URL, error)
	// UserAgent names the client in the server's logs.
	UserAgent string
	// PingAfter is how long nothing may come from the server before it is
	// pinged; 0 is 15 s.
	PingAfter time.Duration
	// Meter counts what goes over the wire; nil counts nowhere.
	Meter *Meter
}

// Client asks one API server. All methods may be called at once; those with a
// context block on the network until it ends, and return errors of
// k8s.io/apimachinery/pkg/api/errors for what the server refused.
type Client struct {
	clients   map[schema.GroupVersion]*rest.RESTClient
	codecs    codecs
	transport *transport
}

// New checks the configuration and makes a client; nothing is connected.
func New(c Config) (*Client, error) {
	server, err := serverURL(c.Server)
	if err != nil {
		return nil, err
	}
	t, err := newTransport(&c, server)
	if err != nil {
		return nil, err
	}
	client := &Client{codecs: newCodecs(), transport: t, clients: make(map[schema.GroupVersion]*rest.RESTClient, len(kinds))}
	for group := range kinds {
		path := "apis/" + group.String()
		if group.Group == "" {
			path = "api/" + group.Version
		}
		client.clients[group], err = rest.NewRESTClient(server, path, rest.ClientContentConfig{
			ContentType:        runtime.ContentTypeProtobuf,
			AcceptContentTypes: runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON,
			GroupVersion:       group,
			Negotiator:         runtime.NewClientNegotiator(client.codecs.NegotiatedSerializer, group),
		}, nil, &http.Client{Transport: t, CheckRedirect: noRedirect})
		if err != nil {
			return nil, fmt.Errorf("API server %s: %w", server, err)
		}
	}
	return client, nil
}

// noRedirect: the API server sends nobody elsewhere, and a certificate shown
// to another host would be.
func noRedirect(*http.Request, []*http.Request) error {
	return errors.New("the server redirects to another address, as no API server does")
}

// Get reads one object into into.
func (c *Client) Get(ctx context.Context, r Resource, namespace, name string, into runtime.Object) error {
	return c.do(ctx, "get", r, namespace, name, func(rc *rest.RESTClient) *rest.Request { return rc.Get() }, into)
}

// List reads the objects that options select into into, a list.
func (c *Client) List(ctx context.Context, r Resource, namespace string, options metav1.ListOptions, into runtime.Object) error {
	return c.do(ctx, "list", r, namespace, "", func(rc *rest.RESTClient) *rest.Request {
		return rc.Get().VersionedParams(&options, c.codecs.params)
	}, into)
}

// Create sends a new object and reads what it became into into, which may be
// nil. With a subresource, name is the object that it belongs to; else name is
// empty, and the object has it.
func (c *Client) Create(ctx context.Context, r Resource, namespace, name, subresource string, object, into runtime.Object) error {
	return c.do(ctx, "create", r, namespace, name, func(rc *rest.RESTClient) *rest.Request {
		return sub(rc.Post(), subresource).Body(object)
	}, into)
}

// Patch sends a change of an object or of a subresource of it ("" is the
// object), and reads what it became into into, which may be nil.
func (c *Client) Patch(ctx context.Context, r Resource, namespace, name, subresource string, kind types.PatchType, patch []byte, into runtime.Object) error {
	return c.do(ctx, "patch", r, namespace, name, func(rc *rest.RESTClient) *rest.Request {
		return sub(rc.Patch(kind), subresource).Body(patch)
	}, into)
}

// Delete deletes an object.
func (c *Client) Delete(ctx context.Context, r Resource, namespace, name string, options metav1.DeleteOptions) error {
	return c.do(ctx, "delete", r, namespace, name, func(rc *rest.RESTClient) *rest.Request {
		return rc.Delete().Body(&options)
	}, nil)
}

// Watch follows the objects that options select until ctx ends, the server
// ends it, or the caller stops it, which it has to.
func (c *Client) Watch(ctx context.Context, r Resource, namespace string, options metav1.ListOptions) (watch.Interface, error) {
	options.Watch = true
	ctx = context.WithValue(ctx, purposeKey{}, purpose{"watch", r.name})
	request := c.request(r, namespace, "", func(rc *rest.RESTClient) *rest.Request {
		return rc.Get().VersionedParams(&options, c.codecs.params)
	})
	if options.TimeoutSeconds != nil {
		request = request.Timeout(time.Duration(*options.TimeoutSeconds) * time.Second)
	}
	w, err := request.Watch(ctx)
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", r, err)
	}
	return w, nil
}

// Raw reads what is at a path of the server, such as /version, as it is.
func (c *Client) Raw(ctx context.Context, path string) ([]byte, error) {
	ctx = context.WithValue(ctx, purposeKey{}, purpose{"get", path})
	data, err := c.clients[kindsOfCore].Get().AbsPath(path).WarningHandlerWithContext(rest.NoWarnings{}).DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", path, err)
	}
	return data, nil
}

// kindsOfCore is the group whose client serves requests of no group.
var kindsOfCore = Pods.group

func (c *Client) do(ctx context.Context, verb string, r Resource, namespace, name string, make func(*rest.RESTClient) *rest.Request, into runtime.Object) error {
	ctx = context.WithValue(ctx, purposeKey{}, purpose{verb, r.name})
	result := c.request(r, namespace, name, make).Do(ctx)
	var err error
	if into == nil {
		err = result.Error()
	} else {
		err = result.Into(into)
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", verb, path(r, namespace, name), err)
	}
	return nil
}

func (c *Client) request(r Resource, namespace, name string, make func(*rest.RESTClient) *rest.Request) *rest.Request {
	request := make(c.clients[r.group]).NamespaceIfScoped(namespace, namespace != "").Resource(r.name).
		WarningHandlerWithContext(rest.NoWarnings{})
	if name != "" {
		request = request.Name(name)
	}
	return request
}

func sub(request *rest.Request, subresource string) *rest.Request {
	if subresource == "" {
		return request
	}
	return request.SubResource(subresource)
}

// path is how an object is named in errors.
func path(r Resource, namespace, name string) string {
	out := r.name
	for _, part := range []string{namespace, name} {
		if part != "" {
			out += "/" + part
		}
	}
	return out
}
