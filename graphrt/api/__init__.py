"""The public functions, a file a family, with TF1's signatures. The namespaces (`graphrt.nn`,
`graphrt.math`, ...) and `graphrt` itself collect them: look a function up here to see the nodes that it
builds.
"""
