"""The settings of the models: the parameters in their config.pbtxt, read and checked."""
